// SPDX-License-Identifier: Apache-2.0
// Texts with several prompts, and what may happen to them.
#pragma once

#include <cache/support/driving.hpp>
#include <cache/support/saved_bytes.hpp>
#include <cache/support/small_policies.hpp>

#include <doctest/doctest.h>

#include <algorithm>  // std::lower_bound, std::max, std::min
#include <array>      // std::array
#include <map>        // std::map
#include <optional>   // std::optional
#include <vector>     // std::vector

namespace zoomr_test {

inline constexpr markup conversation_texts[] = {markup::pairs, markup::summaries_alone, markup::sentences,
                                                markup::no_delimiter, markup::stray};

/// Of a page, of one token, two in a row, at the text's end, right behind the first prompt of 61 tokens.
inline const std::vector<zoomr::token_range> some_later_prompts[] = {{{80, 97}, {120, 121}, {121, 140}, {160, 211}},
                                                                     {{61, 64}, {64, 70}, {100, 150}},
                                                                     {{75, 180}, {190, 192}},
                                                                     {{90, 106}, {130, 146}, {178, 210}}};

/// A later prompt is refused.
template <class Policy>
constexpr bool frees_pages(const Policy& policy) {
  if constexpr (requires { policy.placement.frees_unreachable; }) return policy.placement.frees_unreachable;
  return false;
}

inline tape conversation(const shape& model, std::uint64_t seed, kind look = kind::uniform) {
  tape says = make_tape(model, look, conversation_texts[seed % 5], 211, 61, seed);
  says.later_prompts = some_later_prompts[seed % 4];
  return says;
}

/// The text with items that are passed whole, of up to 20 tokens: single tokens between them, or none.
template <class Policy>
tape with_whole_items(const Policy& policy, tape says, std::uint64_t seed) {
  constexpr index_t more = 3;  // tokens that are not accepted, where an item is not complete
  dice random(mixed(seed));
  if (frees_pages(policy)) says.later_prompts.clear();
  index_t prompt_end = says.prompt;
  for (index_t now = says.prompt; now < says.size();) {
    if (const auto prompt = says.prompt_at(now)) {
      now = prompt_end = prompt->last;
      continue;
    }
    index_t most = std::min(says.generated_until(now) - now, index_t{20});
    const bool complete = seed % 3 == 1 || random.chance(60);
    if constexpr (requires { policy.evict.every; }) {  // none is evicted in its middle
      most = std::min(most, policy.evict.every - (now - prompt_end) % policy.evict.every - (complete ? 0 : more));
    }
    const index_t count = most < 2 || random.chance(20) ? 1 : random.between(2, most);
    if (count > 1) says.whole_items.push_back({{now, now + count}, complete});
    now += count;
  }
  return says;
}

/// The policy with room for questions, and a preamble where it chooses; two of three tell. One that evicts by attention
/// keeps no more than what is pinned in a text, or a few tokens more.
template <class Policy>
Policy pinning(Policy policy, std::uint64_t seed, const tape& says) {
  policy.zone.question = seed % 3 == 0 ? 9 : seed % 3 == 1 ? 33 : 90;
  if constexpr (decltype(policy.evict)::observes) {
    policy.evict.tokens =
        policy.zone.sinks + policy.evict.safe(says.size()) + policy.zone.question + static_cast<index_t>(seed % 5) * 3;
    for (index_t t = policy.zone.sinks; t < says.size(); ++t)
      policy.evict.tokens += has(says.class_at(t), token_class::pinned) ? 1 : 0;
    return policy;
  }
  if (seed % 3 > 0) policy.zone.preamble = 25;
  if (seed % 4 > 1) policy.zone.turns = 27;
  if constexpr (requires { policy.aggregate.question; }) policy.aggregate.question = seed % 2 == 0 ? 11 : 25;
  return policy;
}

/// The text with spans: a few that are pinned, anywhere, and in most prompts a question; or with messages instead.
inline tape with_spans(tape says, std::uint64_t seed) {
  dice random(mixed(seed + 77));
  std::vector<zoomr::token_range> prompts{{0, says.prompt}};
  prompts.insert(prompts.end(), says.later_prompts.begin(), says.later_prompts.end());
  if (seed % 2 == 0) {
    says.ids[0] = message_id;
    for (const zoomr::token_range& prompt : prompts) {
      const index_t second = random.between(prompt.first, std::min(prompt.first + 20, prompt.last - 1));
      if (!random.chance(20)) says.ids[static_cast<std::size_t>(second)] = message_id;
    }
    if (seed % 4 == 0) return says;
  }
  for (index_t now = random.between(0, 30); now < says.size() - 1;) {
    const index_t last = std::min(now + random.between(1, 12), says.size());
    const auto in = says.prompt_at(now);
    const bool asks = in && last <= in->last && random.chance(50);
    says.spans.push_back({{now, last}, asks ? zoomr::span_role::question : zoomr::span_role::pinned});
    now = random.chance(15) ? last : last + random.between(1, 50);
  }
  return says;
}

/// What is pinned of a text when so many tokens of it are there: token by token, by the words of docs/engine.md.
/// @param segments  that are closed then
template <class Policy>
std::vector<zoomr::pinned_range> pins_of(const Policy& policy, const tape& says, index_t tokens,
                                         view<const zoomr::segment> segments) {
  const auto is = [&](index_t t, token_class mask) { return has(says.class_at(t), mask); };
  const auto first_of = [&](token_class mask, index_t from, index_t to) {
    while (from < to && !is(from, mask)) ++from;
    return from;
  };
  std::vector<zoomr::token_range> prompts{{0, says.prompt}};
  prompts.insert(prompts.end(), says.later_prompts.begin(), says.later_prompts.end());
  std::erase_if(prompts, [&](zoomr::token_range prompt) { return prompt.last > tokens; });
  zoomr::token_range question;
  for (const zoomr::token_range& prompt : prompts) {
    index_t last = prompt.last;
    while (last > prompt.first && !is(last - 1, token_class::question)) --last;
    if (last > prompt.first) question = {first_of(token_class::question, prompt.first, last), last};
  }
  if (question.last == 0 && !prompts.empty()) {
    const zoomr::token_range prompt = prompts.back();
    if (first_of(token_class::message, prompt.first, prompt.last) < prompt.last) question = prompt;
  }
  question.first = std::max(question.first, question.last - policy.zone.question);
  const index_t preamble = prompts.empty() ? 0 : std::min(policy.zone.preamble, says.prompt);
  const index_t message = first_of(token_class::message, 0, preamble);
  const index_t second = first_of(token_class::message, message + 1, preamble);
  const index_t text = (second < preamble ? second : message) + 4;  // behind the header

  std::vector<int> ranks(static_cast<std::size_t>(tokens));  // 2: pinned, 1: question
  const auto raise = [&](index_t first, index_t last, int rank) {
    for (index_t t = first; t < last; ++t) {
      int& now = ranks[static_cast<std::size_t>(t)];
      now = std::max(now, rank);
    }
  };
  if (policy.zone.prompt && !prompts.empty()) raise(0, says.prompt, 2);
  if (decltype(policy.evict)::observes && !Policy::selects) {
    raise(question.first, question.last, 1);
    for (index_t t = 0; t < tokens; ++t) raise(t, is(t, token_class::pinned) ? t + 1 : t, 2);
  } else {
    index_t end = 0;  // of the segment before
    for (const zoomr::segment& s : segments) {
      const bool named = is(s.begin, token_class::pinned);
      const bool opens = message < preamble && s.end <= preamble && end <= text;
      const bool asks = question.first <= s.begin && s.end <= question.last;
      raise(s.begin, s.end, named || opens ? 2 : asks ? 1 : 0);
      end = s.end;
    }
  }
  std::vector<zoomr::pinned_range> ranges;
  for (index_t t = 0; t < tokens; ++t) {
    const int rank = ranks[static_cast<std::size_t>(t)];
    if (rank == 0) continue;
    const bool goes_on = t > 0 && ranks[static_cast<std::size_t>(t - 1)] == rank;
    if (!goes_on) ranges.push_back({{t, t}, rank == 2 ? zoomr::span_role::pinned : zoomr::span_role::question});
    ranges.back().tokens.last = t + 1;
  }
  return ranges;
}

/// What has happened in some random lives.
struct happened {
  index_t rolled_into = 0;    // a later prompt
  index_t rolled_before = 0;  // one
  index_t refused = 0;        // rollbacks
  index_t taken_back = 0;     // tokens of a whole item, once all were committed
  index_t forked = 0;
  index_t loaded_within = 0;           // a later prompt
  index_t pinned = 0;                  // ranges after the steps
  index_t questions = 0;               // of these
  std::map<index_t, index_t> longest;  // by voice: most tokens that it has had in this life
};

/// A voice rolled back by some tokens, if its policy lets it: a few, or many. Where choices count the last queries no
/// further than these are remembered for sure.
template <class Policy, class Player>
void roll_back(const Policy&, Player& plays, index_t v, dice& random, happened& all) {
  const tape& says = *plays.at(v).says;
  const index_t now = plays.tokens(v), few = limits_for(says.size()).rollback_tokens;
  index_t least = std::max(says.prompt, now - (random.chance(75) ? few : 100));
  if (reads_keys<Policy>) least = std::max(least, all.longest[v] - few);
  index_t to = random.between(std::min(now, least), now);
  for (const reference::whole_item& item : says.whole_items) {  // what is passed whole is passed so again
    if (item.tokens.first < to && to < item.tokens.last) to = item.tokens.first;
  }
  if (to < std::min(now, least)) return;
  try {
    plays.rollback(v, to);
  } catch (const zoomr::error& why) {
    REQUIRE(why.code() == zoomr::errc::rollback_depth);
    REQUIRE(plays.tokens(v) == now);
    ++all.refused;
    return;
  }
  const auto within = says.prompt_at(to);
  const bool into = within && within->first > 0 && to > within->first;
  all.rolled_into += into ? 1 : 0;
  all.rolled_before += !into && to < now && says.generated_until(to) < now ? 1 : 0;
  REQUIRE(plays.cache.in_prompt(plays.at(v).seq) == (into || to < says.prompt));
}

inline const reference::whole_item* whole_item_at(const tape& says, index_t position) {
  for (const reference::whole_item& item : says.whole_items) {
    if (item.tokens.first <= position && position < item.tokens.last) return &item;
  }
  return nullptr;
}

/// The next item of a voice that is passed whole, if it is its turn; otherwise nothing that reaches into one.
inline std::optional<part> next_whole(const tape& says, index_t v, index_t now, index_t& most) {
  for (const reference::whole_item& item : says.whole_items) {
    if (item.tokens.first == now) return whole_part(says, v, item);
    if (item.tokens.first > now) most = std::min(most, item.tokens.first - now);
  }
  return std::nullopt;
}

/// One step of each voice that is not at its end, cut anywhere, or dropped.
/// @param takes_back  of an item that is passed whole all tokens may be committed, and rolled back where they are wrong
template <class Player>
void any_step(Player& plays, dice& random, happened& all, bool takes_back = false) {
  std::vector<part> parts;
  for (index_t v = 0; v < static_cast<index_t>(plays.voices.size()); ++v) {
    if (plays.done(v)) continue;
    const tape& says = *plays.at(v).says;
    const bool prompt = says.in_prompt(plays.tokens(v));
    index_t most = prompt ? 40 : 6;
    if (const auto whole = next_whole(says, v, plays.tokens(v), most)) {
      parts.push_back(*whole);
      continue;
    }
    parts.push_back(part_of(says, v, plays.tokens(v), random.between(1, most)));
    if (!prompt && random.chance(25)) parts.back().ids.back() = unspoken_id;
  }
  if (random.chance(20)) {
    plays.play(parts, random.one_of(std::array{fate::dropped_at_once, fate::dropped_between_layers,
                                               fate::dropped_after_pass, fate::dropped_after_first_pass}));
  }
  std::vector<index_t> ends;  // where they should end
  for (part& each : parts) {
    each.accept_all = each.whole && takes_back && random.chance(50);
    const index_t now = plays.tokens(each.voice), count = static_cast<index_t>(each.ids.size());
    const reference::whole_item* const item = whole_item_at(*plays.at(each.voice).says, now);
    ends.push_back(each.accept_all ? item->tokens.last : now + count);
  }
  plays.play(parts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const index_t v = parts[i].voice;
    all.longest[v] = std::max(all.longest[v], plays.tokens(v));
    if (plays.tokens(v) <= ends[i]) continue;
    plays.rollback(v, ends[i]);
    ++all.taken_back;
  }
}

/// The same. After it the cache says what is pinned, and each token that was generated has read what was before.
template <class Policy, class Player>
void any_step_with_pins(const Policy& policy, Player& plays, dice& random, happened& all, bool takes_back = false) {
  std::vector<std::vector<zoomr::pinned_range>> pins;
  std::vector<index_t> firsts;
  for (const voice& each : plays.voices) {
    pins.push_back(plays.cache.pinned(each.seq));
    firsts.push_back(plays.cache.tokens(each.seq));
  }
  any_step(plays, random, all, takes_back);
  for (std::size_t v = 0; v < plays.voices.size(); ++v) {
    const voice& each = plays.voices[v];
    bool all_read = true;
    for (auto at = each.log.lower_bound({firsts[v], 0}); at != each.log.end(); ++at) {
      for (const std::vector<index_t>& read : at->second.attended) {
        for (const zoomr::pinned_range& range : pins[v]) {
          const auto first = std::lower_bound(read.begin(), read.end(), range.tokens.first);
          const auto last = std::lower_bound(first, read.end(), range.tokens.last);
          all_read = all_read && last - first == range.tokens.size();
        }
      }
    }
    REQUIRE(all_read);
    pins[v] = plays.cache.pinned(each.seq);
    const index_t tokens = plays.cache.tokens(each.seq);
    REQUIRE(pins[v] == pins_of(policy, *each.says, tokens, plays.cache.segments(each.seq)));
    for (const zoomr::pinned_range& range : pins[v]) {
      ++all.pinned;
      all.questions += range.role == zoomr::span_role::question ? 1 : 0;
    }
  }
}

/// A random life of the first voice, and of up to two forks of it, to the end of their texts.
/// @param save_and_load  save_and_load(voice)
/// @param step           step(dice)  one step of all that are not at their end
template <class Policy, class Player, class Save, class Step>
void live(const Policy& policy, Player& plays, std::uint64_t seed, happened& all, Save save_and_load, Step step) {
  const auto voices = [&] { return static_cast<index_t>(plays.voices.size()); };
  dice random(mixed(seed));
  all.longest.clear();
  for (bool left = true; left;) {
    for (index_t v = 0; v < voices(); ++v) {
      if (random.chance(4)) roll_back(policy, plays, v, random, all);
      if (random.chance(4)) save_and_load(v);
    }
    if (voices() < 3 && plays.tokens(0) > 70 && random.chance(10)) {
      all.longest[fork(plays, 0, *plays.at(0).says)] = all.longest[0];
      ++all.forked;
    }
    step(random);
    left = false;
    for (index_t v = 0; v < voices(); ++v) left = left || !plays.done(v);
  }
}

/// Limits for items of up to 23 tokens that are passed whole, some of them wrong.
inline zoomr::config limits_for_whole(const tape& says, index_t sequences = 1) {
  zoomr::config limits = limits_for(says.size() + 3, sequences);
  limits.max_draft_tokens = 23;
  return limits;
}

template <class Player>
void save_and_load(Player& plays, index_t v, happened& all) {
  memory_sink saved;
  plays.cache.save(plays.at(v).seq, saved);
  plays.cache.close(plays.at(v).seq);
  memory_source from(saved.bytes);
  plays.at(v).seq = plays.cache.load(from);
  const auto within = plays.at(v).says->prompt_at(plays.tokens(v));
  all.loaded_within += within && within->first > 0 && within->first < plays.tokens(v) ? 1 : 0;
}

/// Compares random lives of a text with the text token by token.
/// @param limits_for  limits_for(text, sequences)
template <class Policy, class Limits>
void check_lives(const Policy& policy, const Limits& limits_for, const tape& says, std::uint64_t seed, happened& all) {
  const shape& model = says.numbers.model;
  player<Policy> plainly(model, policy, limits_for(says, 1)), plays(model, policy, limits_for(says, 3));
  plainly.open(says);
  plainly.play_plainly();
  plays.open(says);
  live(
      policy, plays, seed, all, [&](index_t v) { save_and_load(plays, v, all); },
      [&](dice& random) { any_step_with_pins(policy, plays, random, all, takes_back_alike<Policy>); });
  for (voice& each : plays.voices) REQUIRE(difference(plainly.at(0).log, each.log) == "");
}

}  // namespace zoomr_test

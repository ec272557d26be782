// SPDX-License-Identifier: Apache-2.0
// What comes after the first prompt and was not generated: a prompt that begins then, as the next message of a
// conversation or tokens that are read again; and items that are passed whole.
#include <cache/support/against_reference.hpp>
#include <cache/support/conversations.hpp>
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>

#include <doctest/doctest.h>

#include <set>      // std::set
#include <string>   // std::string
#include <utility>  // std::pair

namespace zoomr_test {
namespace {

constexpr shape model{2, 4, 2, 8};

TEST_CASE("every preset attends, chooses and evicts after later prompts as the naive reference does") {
  for_each_preset([](const char* name, const auto& policy) {
    if (frees_pages(policy)) return;
    comparison all;
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      const tape says = conversation(model, seed, seed % 3 == 0 ? kind::peaked : kind::uniform);
      check_against_reference(policy, says, limits_for(says.size()), false, all);
    }
    check_rarely_stopped(name, all);
  });
}

TEST_CASE("items that are passed whole are attended, and chosen behind, as by the naive reference") {
  for_each_policy([](const char* name, const auto& policy) {
    comparison all;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      const tape text = conversation(model, seed, seed % 3 == 0 ? kind::peaked : kind::uniform);
      const tape says = with_whole_items(policy, text, seed);
      REQUIRE(says.whole_items.size() > 1);
      check_against_reference(policy, says, limits_for_whole(says), false, all);
    }
    check_rarely_stopped(name, all);
  });
}

TEST_CASE("later prompts cut anywhere, dropped, rolled back, forked, saved and loaded give the same bits") {
  for_each_preset([](const char* name, const auto& policy) {
    if (frees_pages(policy)) return;
    happened all;
    for (std::uint64_t seed = 1; seed <= 16; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      check_lives(policy, limits_for_whole, conversation(model, seed), seed, all);
    }
    CAPTURE(std::string(name));
    CHECK(all.forked > 0);
    CHECK(all.loaded_within > 0);
    const bool evicts = policy.evict.kept(211) < 211;
    CHECK((evicts || all.rolled_into > 0));
    CHECK((evicts || all.rolled_before > 0));
  });
}

TEST_CASE(
    "items that are passed whole give the same bits in any batch, also where what is wrong of them is taken back") {
  for_each_preset([](const char* name, const auto& policy) {
    using policy_type = std::decay_t<decltype(policy)>;
    happened all;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      check_lives(policy, limits_for_whole, with_whole_items(policy, conversation(model, seed), seed), seed, all);
    }
    CAPTURE(std::string(name));
    CHECK(all.forked > 0);
    CHECK((all.taken_back > 0) == takes_back_alike<policy_type>);
  });
}

TEST_CASE("spans, preambles and questions are attended by each policy as by the naive reference") {
  for_each_policy([](const char* name, const auto& policy) {
    comparison all;
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      tape text = conversation(model, seed, seed % 3 == 0 ? kind::peaked : kind::uniform);
      if (frees_pages(policy)) text.later_prompts.clear();
      const tape says = with_spans(text, seed);
      zoomr::config limits = limits_for(says.size());
      if (seed % 3 > 0) limits = with_rotary(limits);
      check_against_reference(pinning(policy, seed, says), says, limits, false, all);
    }
    check_rarely_stopped(name, all);
  });
}

TEST_CASE("spans cut anywhere, dropped, rolled back, forked, saved and loaded give the same bits") {
  for_each_preset([](const char* name, const auto& policy) {
    if (frees_pages(policy)) return;
    happened all;
    for (std::uint64_t seed = 1; seed <= 16; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      const tape says = with_spans(conversation(model, seed), seed);
      const auto limits = [&](const tape& text, index_t sequences) {
        return seed % 3 > 0 ? with_rotary(limits_for_whole(text, sequences)) : limits_for_whole(text, sequences);
      };
      check_lives(pinning(policy, seed, says), limits, says, seed, all);
    }
    CAPTURE(std::string(name));
    CHECK((policy.evict.observes || all.rolled_into > 0));
    CHECK((policy.evict.observes || all.rolled_before > 0));
    CHECK(all.pinned > all.questions);
    CHECK(all.questions > 0);
  });
}

TEST_CASE("boundaries after one token at most are every_token: in prompts, drafts and items that are passed whole") {
  const auto& boundaries = small::focus_each_token;
  const auto every_token =
      zoomr::compose(boundaries.segment, boundaries.summarize, boundaries.score, boundaries.aggregate,
                     boundaries.select, zoomr::every_token{}, boundaries.zone, boundaries.placement);
  const auto played = [](const auto& policy, const tape& says, std::uint64_t seed) {
    player<std::decay_t<decltype(policy)>> plays(model, policy, limits_for_whole(says));
    plays.open(says);
    dice random(mixed(seed));
    happened all;
    index_t steps = 0;
    for (; !plays.done(0); ++steps) any_step(plays, random, all);
    return std::pair(steps, plays.at(0).log);
  };
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    const tape says = with_whole_items(every_token, conversation(model, seed), seed);
    const auto [steps, log] = played(boundaries, says, seed);
    const auto [wanted_steps, wanted] = played(every_token, says, seed);
    CHECK(steps == wanted_steps);
    REQUIRE(difference(wanted, log) == "");
  }
}

template <class Policy>
std::string refusal_of(const Policy& policy, const tape& says, index_t now, index_t count) {
  player<Policy> plays(model, policy, limits_for(says.size()));
  plays.open(says);
  plays.play_plainly(0, now);
  part whole = plays.next(0, count);
  whole.whole = true;
  const std::string why = sentence_of([&] { plays.play({whole}); });
  CHECK(plays.tokens() == (why.empty() ? now + count : now));
  return why;
}

TEST_CASE("an item is not passed whole that is too long, or has tokens evicted in its middle") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, 150, 61, 3);
  CHECK(refusal_of(small::zoomr_focus, says, 70, 8) == "");
  CHECK(refusal_of(small::zoomr_focus, says, 70, 9) ==
        "zoomr: begin: an item that is passed whole has 9 tokens, config.max_draft_tokens is 8: raise it, or begin a "
        "later prompt");
  CHECK(refusal_of(small::pinned_prompt, says, 61, 6) == "");  // at its end
  CHECK(refusal_of(small::pinned_prompt, says, 61, 7) ==
        "zoomr: begin: an item cannot be passed whole where the policy evicts tokens in its middle: it would have to "
        "end after 6 tokens");
}

TEST_CASE("what a step would take is said beforehand, and refused as a step is") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, 150, 61, 3);
  player<std::decay_t<decltype(small::sentence_box)>> plays(model, small::sentence_box, limits_for(says.size()));
  plays.open(says);
  plays.play_plainly(0, 70);
  const std::vector<token_id> ids = says.between(70, 90);
  zoomr::step_item item{plays.at(0).seq, view<const token_id>(ids)};
  const auto& cache = std::as_const(plays.cache);
  std::vector<index_t> taken(1, -1);
  const auto plan = [&] { cache.plan(view<const zoomr::step_item>(&item, {1}), view<index_t>(taken)); };
  plan();
  CHECK(taken[0] > 0);
  CHECK(taken[0] < 8);
  CHECK(plays.tokens() == 70);
  CHECK(plays.play({plays.next(0, 20)}) == taken);
  item.prompt_ends = true;
  CHECK(sentence_of(plan) ==
        "zoomr: begin: the prompt of this sequence has already ended; another begins with `prompt_begins`");
  item.prompt_begins = true;
  plan();
  CHECK(taken[0] == 20);
  CHECK(sentence_of([&] { cache.plan(view<const zoomr::step_item>(&item, {1}), view<index_t>()); }) ==
        "zoomr: plan: taken is [0], wanted [1]");
  auto step = plays.cache.begin(plays.at(0).seq, view<const token_id>(ids).slice(0, 1));
  CHECK(sentence_of(plan) == "zoomr: a step is in progress: commit or drop it first");
}

// What is passed after a span was erased gets what it gets in the text that never had the span.
template <class Policy>
void check_erased(const Policy& policy, std::uint64_t seed) {
  CAPTURE(seed);
  dice random(mixed(seed));
  const tape says = conversation(model, seed);
  player<Policy> plays(model, policy, limits_for(says.size())), never(model, policy, limits_for(says.size()));
  plays.open(says);
  const index_t now = random.between(says.prompt + 20, says.size() - 1);
  plays.play_plainly(0, now);
  zoomr::token_range span{random.between(0, now - 2), 0};
  span.last = random.between(span.first + 1, std::min(now - 1, span.first + 60));
  if (span.first == 0 && span.last >= says.prompt) span.first = 1;
  CAPTURE(span.first);
  CAPTURE(span.last);
  const tape left = says.without(span);
  plays.cache.erase(plays.at(0).seq, span);
  plays.at(0).says = &left, plays.at(0).log.clear();
  CHECK(plays.cache.in_prompt(plays.at(0).seq) ==
        (says.in_prompt(now) && says.in_prompt(now - 1) && says.prompt_at(now)->first < now));
  plays.play_plainly();
  never.open(left);
  never.play_plainly();
  never.at(0).log.erase(never.at(0).log.begin(), never.at(0).log.lower_bound({now - span.size(), 0}));
  REQUIRE(difference(never.at(0).log, plays.at(0).log) == "");
}

TEST_CASE("a span goes that holds a part of a later prompt, its end, or all of it") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    check_erased(small::full, seed);
    check_erased(small::quest, seed);
    check_erased(small::sentence_box, seed);
  }
}

TEST_CASE("a later prompt is open until it ends, counts as prompt, and may begin only after one that has ended") {
  const tape says = conversation(model, 4);  // the first later prompt: 80 to 97
  player<std::decay_t<decltype(small::zoomr_focus)>> plays(model, small::zoomr_focus, limits_for(says.size()));
  const index_t v = plays.open(says);
  zoomr::sequence seq = plays.at(v).seq;
  plays.play({{v, says.between(0, 20), false, false, true}});  // where nothing was before it says nothing
  CHECK(sentence_of([&] {
          plays.play({{v, says.between(20, 30), false, false, true}});
        }) == "zoomr: begin: a prompt cannot begin before the one of this sequence has ended, with `prompt_ends`");
  plays.play({{v, says.between(20, 61), true}});
  plays.play_plainly(v, 80);
  CHECK_FALSE(plays.cache.in_prompt(seq));
  CHECK(sentence_of([&] {
          plays.play({{v, says.between(80, 97), true}});
        }) == "zoomr: begin: the prompt of this sequence has already ended; another begins with `prompt_begins`");
  plays.play({{v, says.between(80, 90), false, false, true}});
  CHECK(plays.cache.in_prompt(seq));
  CHECK(plays.cache.stats(seq).prompt_tokens == 71);
  CHECK(plays.cache.stats(seq).tokens == 19);
  CHECK(sentence_of([&] {
          plays.play({{v, says.between(90, 97), true, false, true}});
        }) == "zoomr: begin: a prompt cannot begin before the one of this sequence has ended, with `prompt_ends`");
  plays.play({{v, says.between(90, 97), true}});
  CHECK_FALSE(plays.cache.in_prompt(seq));
  plays.rollback(v, 97);
  CHECK_FALSE(plays.cache.in_prompt(seq));
  plays.rollback(v, 96);
  CHECK(plays.cache.in_prompt(seq));
  plays.rollback(v, 80);  // all of it
  CHECK_FALSE(plays.cache.in_prompt(seq));
  plays.play({{v, says.between(80, 81), false}});  // a generated token may come there too
  CHECK_FALSE(plays.cache.in_prompt(seq));
  CHECK(plays.cache.stats(seq).tokens == 20);
}

TEST_CASE("a file whose later prompts cannot be is refused") {
  const tape says = conversation(model, 4);
  player<std::decay_t<decltype(small::quest)>> plays(model, small::quest, limits_for(says.size(), 2));
  plays.open(says);
  plays.play_plainly(0, 125);  // behind prompts of 80 to 97 and of 120 to 121, in one from 121 on
  memory_sink saved;
  plays.cache.save(plays.at(0).seq, saved);
  const saved_part ranges = part_of(saved.bytes, "later");
  REQUIRE(ranges.length == 4 + 3 * 8);
  const auto place = [&](std::size_t number) { return ranges.begin + 4 + 4 * number; };
  const auto loads = [&](std::size_t number, index_t value) {
    saved_bytes bytes = saved.bytes;
    put_at(bytes, place(number), value);
    reseal(bytes);
    memory_source from(bytes);
    return sentence_of([&] { plays.cache.close(plays.cache.load(from)); });
  };
  CHECK(number_at<index_t>(saved.bytes, place(5)) == -1);
  CHECK(loads(5, -1) == "");
  CHECK(loads(5, 125) == "");  // it has just ended
  const auto refused = [&](std::size_t number, index_t value) {
    return loads(number, value) == "zoomr: load: the file is damaged: section text: a later prompt cannot be there";
  };
  CHECK(refused(0, 60));  // in the first prompt
  CHECK(refused(0, 97));  // empty
  CHECK(refused(0, -80));
  CHECK(refused(1, -1));   // open, and not the last
  CHECK(refused(2, 96));   // in the one before
  CHECK(refused(4, 125));  // behind all tokens
  CHECK(refused(5, 126));
  CHECK(refused(5, -2));
}

TEST_CASE("where pages are freed that no query reaches, a later prompt is refused") {
  std::set<std::string> refused;
  for_each_preset([&](const char* name, const auto& policy) {
    if (!frees_pages(policy)) return;
    const tape says = conversation(model, 4);
    player<std::decay_t<decltype(policy)>> plays(model, policy, limits_for(says.size()));
    plays.open(says);
    plays.play_plainly(0, 80);
    const std::string why = sentence_of([&] { plays.play({part_of(says, 0, 80, 17)}); });
    CHECK(why.find("frees what no query reaches: pass it token by token") != std::string::npos);
    CHECK(plays.tokens() == 80);
    plays.play({{0, says.between(80, 81)}});
    refused.insert(name);
  });
  CHECK(refused == std::set<std::string>{"summary_only", "window"});
}

}  // namespace
}  // namespace zoomr_test

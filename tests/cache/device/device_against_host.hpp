// SPDX-License-Identifier: Apache-2.0
// Plays the same steps with the device cache and the host's, and compares what every query attends and gets.
#pragma once

#include <cache/device/device_driving.hpp>
#include <cache/support/small_policies.hpp>
#include <support/tolerance.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {

inline constexpr index_t tokens = 80;
inline constexpr index_t undo = 24;
inline constexpr index_t most_rollbacks = 16;  // of a run; where a step takes one token, more would go back for long
inline constexpr shape model{2, 4, 2, 8};

template <class Policy>
using device_player = player<Policy, float, device_as_host<Policy, float, 8, 2>>;

/// Some of the next tokens of a prompt.
inline part next_chunk(dice& random, const tape& says, index_t v, index_t now) {
  const index_t count = random.between(1, says.prompt - now);
  return {v, says.between(now, now + count), now + count == says.prompt};
}

inline constexpr index_t short_draft = 6;
inline index_t whole_percent = 0;  // of drafts, that are passed whole where nothing is evicted after them

/// The prompt in chunks, then single tokens, drafts, steps that are dropped, and rollbacks.
/// @param longest_draft  of drafts of more than `short_draft` tokens any may be wrong, of others the last
template <class Player, class Policy>
void play_wildly(Player& plays, const Policy& policy, std::uint64_t seed, index_t longest_draft = short_draft) {
  dice random(seed);
  const tape& says = *plays.at(0).says;
  index_t longest = 0;
  index_t rollbacks = 0;
  while (!plays.done()) {
    const index_t now = plays.tokens();
    longest = std::max(longest, now);
    const auto until = random.chance(12)
                           ? random.one_of(std::array{fate::dropped_at_once, fate::dropped_between_layers,
                                                      fate::dropped_after_pass, fate::dropped_after_first_pass})
                           : fate::committed;
    if (now < says.prompt) {
      plays.play({next_chunk(random, says, 0, now)}, until);
      continue;
    }
    part draft = plays.next(0, random.chance(40) ? random.between(2, longest_draft) : 1);
    const std::size_t right = draft.ids.size() - 1;
    token_id& wrong = draft.ids[right < short_draft ? right : random.roll() % (right + 1)];
    if (random.chance(40)) wrong = random.chance(50) ? delimiter_id : random.between(1, 30);
    draft.whole = whole_percent > 0 && !evicts_later<Policy> && random.chance(whole_percent);
    plays.play({draft}, until);
    longest = std::max(longest, plays.tokens());
    const bool stays = least_rollback(policy, says.prompt, plays.tokens() + 3) <= plays.tokens();
    if (random.chance(15) && stays &&
        plays.tokens() + 3 <= tokens) {  // other text, which closes other segments, is committed and rolled back
      const index_t before = plays.tokens();
      for (index_t count = random.between(1, 3); count > 0; --count) {
        plays.play({{0, {random.chance(50) ? delimiter_id : random.between(1, 30)}, false, true}});
        longest = std::max(longest, plays.tokens());
      }
      plays.rollback(0, std::max(before, longest - undo));
      if (plays.tokens() > before) throw std::logic_error("a detour went too far to be rolled back");
    }
    const index_t to = std::max({says.prompt, longest - undo, plays.tokens() - random.between(0, undo),
                                 least_rollback(policy, says.prompt, longest)});
    if (random.chance(10) && rollbacks++ < most_rollbacks) plays.rollback(0, std::min(to, plays.tokens()));
  }
}

/// @param rounding  what outputs may differ by, beyond the order of summation
inline void compare(const result_log& host, const result_log& device, index_t head_dim = 8, double rounding = 0.0) {
  const log_comparison result = compared(host, device, tolerance_of(head_dim, tokens, rounding));
  CAPTURE(result.place.first);
  CAPTURE(result.place.second);
  CAPTURE(result.row);
  REQUIRE(result.difference == "");
}

/// @param fixed          steps after the prompt are as for a graph
/// @param prompt         its tokens; 0: some
/// @param rule           what the model does to its logits
/// @param longest_draft  see play_wildly
template <class Policy>
void check(const Policy& policy, kind look, markup text, std::uint64_t seed, bool fixed = false, index_t prompt = 0,
           const zoomr::logit_rule& rule = {}, index_t longest_draft = short_draft) {
  INFO("seed ", seed);
  if (prompt == 0) prompt = static_cast<index_t>(20 + seed * 7 % 20);
  const tape says = make_tape(model, look, text, tokens, prompt, seed);
  zoomr::config limits = limits_for(tokens);
  limits.logits = rule;
  limits.max_draft_tokens = std::max(limits.max_draft_tokens, longest_draft);
  limits.min_sparse_context = seed % 3 == 0 && !policy.placement.frees_unreachable ? 47 : 0;
  player<Policy> host(model, policy, limits);
  device_player<Policy> device(model, policy, limits);
  device.cache.fixed = fixed;
  host.observe_prompts = device.observe_prompts = seed % 2 == 0;
  host.open(says);
  device.open(says);
  play_wildly(host, policy, seed, longest_draft);
  play_wildly(device, policy, seed, longest_draft);
  CHECK(host.second_passes == device.second_passes);
  compare(host.at(0).log, device.at(0).log);
}

/// Three sequences: prompts of short sentences one after the other in chunks, then steps with any of them, in which a
/// prompt's chunk may stand beside drafts.
template <class Player>
void play_together(Player& plays, std::uint64_t seed, index_t longest_draft = 3, bool wholes = false) {
  dice random(seed);
  const auto next_of = [&](index_t v) {
    const tape& says = *plays.at(v).says;
    const index_t now = plays.tokens(v);
    if (now >= says.prompt) return plays.next(v, random.between(1, longest_draft));
    return next_chunk(random, says, v, now);
  };
  for (index_t v = 0; v < 2; ++v) plays.play({next_of(v)});
  for (;;) {
    std::vector<part> parts;
    std::size_t packed = 0;
    for (index_t v = 0; v < 3; ++v) {
      if (plays.done(v) || !random.chance(70)) continue;
      part next = next_of(v);
      if (packed + next.ids.size() > 48) continue;
      packed += next.ids.size();
      next.whole = wholes && random.chance(whole_percent);
      parts.push_back(std::move(next));
    }
    if (!parts.empty()) plays.play(parts);
    if (plays.done(0) && plays.done(1) && plays.done(2)) return;
  }
}

template <class Policy>
void check_together(const Policy& policy, std::uint64_t seed, index_t longest_draft = 3) {
  INFO("seed ", seed);
  zoomr::config limits = limits_for(60, 3);
  limits.max_draft_tokens = std::max(limits.max_draft_tokens, longest_draft);
  limits.max_batched_tokens = 48;  // fewer than all prompts close
  player<Policy> host(model, policy, limits);
  device_player<Policy> device(model, policy, limits);
  std::vector<tape> says;
  for (std::uint64_t v = 0; v < 3; ++v) {
    says.push_back(make_tape(model, kind::peaked, v == 2 ? markup::pairs : markup::sentences, 60, 30, seed + v));
  }
  for (const tape& one : says) host.open(one), device.open(one);
  const bool wholes = whole_percent > 0 && !evicts_later<Policy>;
  play_together(host, seed, longest_draft, wholes);
  play_together(device, seed, longest_draft, wholes);
  for (index_t v = 0; v < 3; ++v) compare(host.at(v).log, device.at(v).log);
}

}  // namespace zoomr_test

// SPDX-License-Identifier: Apache-2.0
// Texts with several prompts, and what may happen to them.
#pragma once

#include <cache/support/driving.hpp>
#include <cache/support/small_policies.hpp>

#include <doctest/doctest.h>

#include <algorithm>  // std::max, std::min
#include <array>      // std::array
#include <map>        // std::map
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

/// What has happened in some random lives.
struct happened {
  index_t rolled_into = 0;    // a later prompt
  index_t rolled_before = 0;  // one
  index_t refused = 0;        // rollbacks
  index_t forked = 0;
  index_t loaded_within = 0;           // a later prompt
  std::map<index_t, index_t> longest;  // by voice: most tokens that it has had in this life
};

/// A voice rolled back by some tokens, if its policy lets it: a few, or many. Where choices hear the last queries no
/// further than these are remembered, since fewer would be heard then.
template <class Policy, class Player>
void roll_back(const Policy&, Player& plays, index_t v, dice& random, happened& all) {
  const tape& says = *plays.at(v).says;
  const index_t now = plays.tokens(v), few = limits_for(says.size()).rollback_tokens;
  index_t least = std::max(says.prompt, now - (random.chance(75) ? few : 100));
  if (reads_keys<Policy>) least = std::max(least, all.longest[v] - few);
  const index_t to = random.between(std::min(now, least), now);
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

/// One step of each voice that is not at its end, cut anywhere, or dropped.
template <class Player>
void any_step(Player& plays, dice& random, happened& all) {
  std::vector<part> parts;
  for (index_t v = 0; v < static_cast<index_t>(plays.voices.size()); ++v) {
    if (plays.done(v)) continue;
    const tape& says = *plays.at(v).says;
    const bool prompt = says.in_prompt(plays.tokens(v));
    parts.push_back(part_of(says, v, plays.tokens(v), random.between(1, prompt ? 40 : 6)));
    if (!prompt && random.chance(25)) parts.back().ids.back() = unspoken_id;
  }
  if (random.chance(20)) {
    plays.play(parts, random.one_of(std::array{fate::dropped_at_once, fate::dropped_between_layers,
                                               fate::dropped_after_pass, fate::dropped_after_first_pass}));
  }
  plays.play(parts);
  for (const part& each : parts) all.longest[each.voice] = std::max(all.longest[each.voice], plays.tokens(each.voice));
}

}  // namespace zoomr_test

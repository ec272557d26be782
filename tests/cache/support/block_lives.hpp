// SPDX-License-Identifier: Apache-2.0
// Lives of caches whose rows, or the keys of whose voters, are in blocks of 32 numbers.
#pragma once

#include <cache/support/driving.hpp>
#include <cache/support/saved_bytes.hpp>
#include <cache/support/small_policies.hpp>
#include <cache/support/tiered_limits.hpp>
#include <zoomr/cache/key_rotation.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>

#include <algorithm>  // std::max
#include <vector>     // std::vector

namespace zoomr_test {

inline constexpr shape block_model{2, 4, 2, 64};
inline constexpr index_t tokens = 150, prompt = 61;

/// A row as a cache of `T` stores it.
template <class T>
std::vector<T> stored_row(const float* row, index_t width) {
  std::vector<T> stored(static_cast<std::size_t>(zoomr::stored_size<T>(width)));
  for (index_t d = 0; d < width; d += 32) zoomr::store_block(row + d, 1.0f, stored.data() + zoomr::stored_size<T>(d));
  return stored;
}

/// Chunks of a prompt, drafts, and tokens that are taken back, from the same dice in each cache.
template <class Player>
void play_at_random(Player& plays, const tape& says, std::uint64_t seed) {
  dice random(seed);
  plays.open(says);
  while (!plays.done()) {
    const index_t now = plays.tokens();
    plays.play({part_of(says, 0, now, random.between(1, says.in_prompt(now) ? 40 : 5))});
    if (plays.tokens() <= prompt || !random.chance(15)) continue;
    try {
      plays.rollback(0, std::max(prompt, plays.tokens() - random.between(1, 6)));
    } catch (const zoomr::error& why) {
      REQUIRE(why.code() == zoomr::errc::rollback_depth);
    }
  }
}

/// Pages are written, shared, copied, moved up with turned keys, saved and loaded.
/// @return  what every sequence attended and got
template <class Player>
std::vector<result_log> live(Player& plays, const tape& says, const tape& other, const tape& rest) {
  plays.open(says);
  plays.play_plainly(0, 87);  // the open page is half full, so that the one that writes first copies it
  const index_t branch = fork(plays, 0, other);
  plays.play_plainly(branch, 110), plays.play_plainly(0, 120);
  plays.rollback(0, 112);
  const std::vector<float> frequencies(32, 0.125f);
  plays.cache.erase(plays.at(branch).seq, {20, 33}, zoomr::key_rotation({frequencies.data(), {32}}, -13));
  plays.at(branch).says = &rest;
  plays.voices.push_back({plays.cache.load(memory_source(saved(plays.cache, plays.at(0).seq))), &says, {}});
  for (index_t voice = 0; voice < 3; ++voice) plays.play_plainly(voice);
  std::vector<result_log> logs;
  for (index_t voice = 0; voice < 3; ++voice) logs.push_back(plays.at(voice).log);
  return logs;
}

}  // namespace zoomr_test

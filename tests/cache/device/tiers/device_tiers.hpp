// SPDX-License-Identifier: Apache-2.0
// Plays a policy with all of its details on the device, and over tiers with arenas of some sizes: the bits are the
// same.
#pragma once

#include <cache/device/tiers/arena_limits.hpp>
#include <zoomr/policy/placement/tiered.hpp>

namespace zoomr_test {

/// What a play has given, bit by bit.
inline void same_bits(const result_log& expected, const result_log& got) { REQUIRE(difference(expected, got) == ""); }

/// @param pages  of one layer, for which each arena has room
template <class Policy>
void check_tiers(const Policy& policy, kind look, markup text, std::uint64_t seed, std::vector<index_t> pages,
                 bool fixed = false, const shape& of = model, index_t window = 0) {
  INFO("seed ", seed);
  const tape says = make_tape(of, look, text, tokens, static_cast<index_t>(20 + seed * 7 % 20), seed);
  zoomr::config limits = limits_for(tokens);
  limits.min_sparse_context = seed % 3 == 0 ? 47 : 0;
  limits.logits.window = window;
  device_player<Policy> resident(of, policy, limits);
  resident.cache.fixed = fixed;
  resident.open(says);
  play_wildly(resident, policy, seed);
  const auto moved = with_placement(policy, zoomr::tiered<>{});
  for (const index_t room : pages) {
    CAPTURE(room);
    const zoomr::config tiers = arena_limits(moved, limits, room, of);
#if defined(ZOOMR_SIMT)
    simt::settings how = simt::how;
    how.streams = static_cast<simt::schedule>((seed + static_cast<std::uint64_t>(room)) % 3);
    const simt::scoped_settings until_then(how);
#endif
    device_player<std::remove_const_t<decltype(moved)>> plays(of, moved, tiers);
    plays.cache.fixed = fixed;
    plays.open(says);
    play_wildly(plays, moved, seed);
    same_bits(resident.at(0).log, plays.at(0).log);
    const zoomr::arena_counts counts = plays.cache.tiers();
    CHECK(counts.misses > 0);
    CHECK((room > 2 || counts.in_place > 0));  // a prompt reads more pages of a layer
    CHECK((room < 9 || counts.in_place == 0));
    CHECK((room < 9 || counts.hits > counts.misses));
    CHECK(counts.prefetched_hits <= counts.prefetched);
    if (room < 1000) continue;
    const index_t blocks = of.layers * plays.cache.cache().arrays().sizes.page_parts * (tokens / 16 + 4);
    CHECK(counts.misses + counts.prefetched <= static_cast<unsigned>(blocks));  // each once, and what was rolled back
  }
}

}  // namespace zoomr_test

// SPDX-License-Identifier: Apache-2.0
// How much pinned memory a device cache is given in front of a file, counted in pages of one layer.
#pragma once

#include <cache/device/tiers/arena_limits.hpp>

namespace zoomr_test {

inline zoomr::byte_count page_bytes(const shape& of) {
  return of.kv_heads * 16 * zoomr::byte_count{of.head_dim + of.stored_value_width()} * 4;
}
inline std::int64_t all_blocks(const zoomr::config& limits, const shape& of) {
  return std::int64_t{zoomr::pages_for(limits.pool())} * of.layers;
}

/// The fewest with which a cache is made: what a token writes, and one layer of the longest sequence, two if
/// prefetched.
inline std::int64_t least_blocks(const zoomr::config& limits, const shape& of, bool prefetch) {
  return 2 * of.layers + std::int64_t{prefetch ? 2 : 1} * zoomr::pages_for(limits.max_tokens);
}

/// Limits under which pinned memory has room for `blocks` pages of one layer, and the arena for `room`.
template <class Policy>
zoomr::config file_limits(const Policy& policy, zoomr::config limits, std::int64_t blocks, index_t room,
                          const char* path, const shape& of = model) {
  limits.tiers.host = (blocks + zoomr::pinned_spares) * page_bytes(of);
  limits.tiers.file = all_blocks(limits, of) * page_bytes(of);
  limits.tiers.path = path;
  return arena_limits(policy, limits, room, of);
}

/// Blocks with which a play is never refused, at most two more than the least.
/// @param play  play(blocks)
template <class Play>
std::int64_t enough_blocks(std::int64_t from, std::int64_t all, Play play) {
  for (std::int64_t blocks = from; blocks < all + 3; blocks += 3) {
    const std::int64_t now = (std::min)(blocks, all);
    try {
      play(now);
      return now;
    } catch (const zoomr::error& refused) {
      REQUIRE(refused.code() == zoomr::errc::capacity);
      REQUIRE(std::string(refused.what()).find("raise config.tiers.host") != std::string::npos);
    }
  }
  FAIL("no memory is enough");
  return all;
}

}  // namespace zoomr_test

// SPDX-License-Identifier: Apache-2.0
// L3. What tiers have done, in numbers.
#pragma once

#include <zoomr/core/types.hpp>

#include <algorithm>  // std::max

namespace zoomr::inline v0 {

/// How long bytes were on their way, and how long a thread waited for them. A wait includes the transfers that the
/// waiter makes itself.
struct transfer_times {
  std::int64_t moving_ns = 0;
  std::int64_t waited_ns = 0;
};

/// What tiers have done since the cache was made: the memory where blocks are read, and the one under it, which is the
/// file of a host's cache and the pinned memory of a device's. A visit is a change from one block to another: tokens
/// that are read one after the other from the same block count once.
struct tier_statistics {
  std::int64_t hits = 0;        // visits to a block that was in memory
  std::int64_t misses = 0;      // and to one that had to be fetched, or was on its way
  std::int64_t stalls = 0;      // visits that had to wait for a transfer
  std::int64_t prefetched = 0;  // blocks that were fetched before they were read
  byte_count bytes_in = 0;      // that came to memory, and left it
  byte_count bytes_out = 0;
  transfer_times times;

  /// Hits among visits; 1 without any.
  double hit_rate() const {
    const std::int64_t visits = hits + misses;
    return visits == 0 ? 1.0 : static_cast<double>(hits) / static_cast<double>(visits);
  }
  /// The same counts with these times.
  tier_statistics timed(transfer_times taken) const {
    tier_statistics result = *this;
    result.times = taken;
    return result;
  }
  /// The part of the time of all transfers in which no thread waited; 1 without any, 0 where the caller makes all
  /// itself.
  double hidden() const {
    if (times.moving_ns == 0) return 1.0;
    return (std::max)(0.0, 1.0 - static_cast<double>(times.waited_ns) / static_cast<double>(times.moving_ns));
  }
};

/// What the arena of a device cache has done. A visit is a layer of a pass that reads a block. What is appended goes to
/// the host's page as well, at once, and is not counted: `bytes_out` is 0, like times.
struct arena_statistics : tier_statistics {
  std::int64_t in_place = 0;         // misses that were read where they are, since nothing more had room; not in bytes
  std::int64_t prefetched_hits = 0;  // visits to a block that had been prefetched for just this pass
};

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L3. What users of a tiered pool see of it: KV lanes, and counts.
#pragma once

#include <zoomr/paging/paged_kv_lane.hpp>
#include <zoomr/paging/transfers.hpp>

#include <algorithm>  // std::max

namespace zoomr {
inline namespace v0 {

/// What tiers have done since the cache was made.
struct tier_statistics {
  std::int64_t hits = 0;        // visits to a block that was on the device
  std::int64_t misses = 0;      // and to one that had to be fetched, or was on its way
  std::int64_t stalls = 0;      // visits that had to wait for a transfer
  std::int64_t prefetched = 0;  // blocks that were fetched before they were asked for
  byte_count device_in = 0;     // bytes that came to the device, and left it
  byte_count device_out = 0;
  byte_count file_in = 0;  // bytes read from the file, and written to it
  byte_count file_out = 0;
  transfer_times times;

  double hit_rate() const {
    const std::int64_t all = hits + misses;
    return all == 0 ? 1.0 : static_cast<double>(hits) / static_cast<double>(all);
  }
  tier_statistics with(transfer_times taken) const {
    tier_statistics made = *this;
    made.times = taken;
    return made;
  }
  /// The part of the time of all transfers in which nobody waited.
  double hidden() const {
    if (times.moving_ns == 0) return 1.0;
    return std::max(0.0, 1.0 - static_cast<double>(times.waited_ns) / static_cast<double>(times.moving_ns));
  }
};

/// One KV lane of a tiered pool: as paged_kv_lane, but a pointer is valid only until the next few pages are asked for.
template <class Pool>
struct tiered_kv_lane {
  using number = typename Pool::number;

  Pool* pool = nullptr;
  index_t piece = 0;              // of each page
  std::int64_t head_offset = 0;   // elements from the piece's first key to the KV lane's
  std::int64_t value_offset = 0;  // elements from a key to its value
  index_t head_dim = 0;
  view<const index_t> pages;  // [pages of the sequence]

  const number* key(index_t slot) const {
    return pool->reach(piece, pages[slot / page_tokens]) + head_offset + in_page(slot);
  }
  number* writable_key(index_t slot) const {
    return pool->reach_to_write(piece, pages[slot / page_tokens]) + head_offset + in_page(slot);
  }

 private:
  std::int64_t in_page(index_t slot) const { return static_cast<std::int64_t>(slot % page_tokens) * head_dim; }
};

}  // namespace v0
}  // namespace zoomr

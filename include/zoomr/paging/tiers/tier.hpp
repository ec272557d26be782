// SPDX-License-Identifier: Apache-2.0
// L3. One tier's memory: frames, and which blocks are in them. tiered_blocks has two, the device's and the host's.
#pragma once

#include <zoomr/core/buffer.hpp>
#include <zoomr/paging/tiers/frame_table.hpp>
#include <zoomr/paging/tiers/transfers.hpp>

namespace zoomr::inline v0 {

/// Room for one block, and what goes on in it.
struct tier_frame {
  index_t block = -1;   // -1: empty
  bool dirty = false;   // the tier below has something else, or nothing
  ticket arriving = 0;  // a transfer into it that has not been waited for
  ticket leaving = 0;   // a transfer to the tier below that has not been waited for
};

/// tiered_blocks keeps its parts in step.
template <class T, replacement Replacement>
struct tier : frame_table<tier_frame, Replacement> {
  buffer<T> memory;  // [frames, numbers of a block]

  /// @throws error(capacity) without memory
  tier(index_t count, index_t layers, index_t blocks, std::int64_t block_numbers)
      : frame_table<tier_frame, Replacement>(count, layers, blocks), memory(count * block_numbers) {}

  /// Where a frame's numbers are.
  T* numbers(index_t frame) { return memory.data() + frame * (memory.size() / this->count()); }
};

}  // namespace zoomr::inline v0

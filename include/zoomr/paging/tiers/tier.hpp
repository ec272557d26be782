// SPDX-License-Identifier: Apache-2.0
// L3. One tier's memory: frames, and which blocks are in them. tiered_blocks has two, the device's and the host's.
#pragma once

#include <zoomr/core/buffer.hpp>
#include <zoomr/paging/tiers/replacement.hpp>
#include <zoomr/paging/tiers/transfers.hpp>

namespace zoomr {
inline namespace v0 {

/// Room for one block, and what goes on in it.
struct tier_frame {
  index_t block = -1;   // -1: empty
  bool dirty = false;   // the tier below has something else, or nothing
  ticket arriving = 0;  // a transfer into it that has not been waited for
  ticket leaving = 0;   // a transfer to the tier below that has not been waited for
};

/// Plain data; tiered_blocks keeps its parts in step. A frame is in one of three states: empty (in `free`), claimed
/// (taken from it, with no block yet), or with a block that `block_frames` finds.
template <class T, replacement Replacement>
struct tier {
  buffer<T> memory;  // [frames, numbers of a block]
  std::vector<tier_frame> frames;
  std::vector<index_t> block_frames;  // [blocks]  -1: not here
  std::vector<index_t> free;          // empty frames
  Replacement order;

  /// @throws error(capacity) without memory
  tier(index_t count, index_t layers, index_t blocks, std::int64_t block_numbers)
      : memory(count * block_numbers),
        frames(static_cast<std::size_t>(count)),
        block_frames(static_cast<std::size_t>(blocks), -1),
        order(count, layers) {
    free.reserve(frames.size());
    for (index_t s = count; s-- > 0;) free.push_back(s);
  }

  /// Of the tables, for each frame and for each block.
  static constexpr byte_count frame_table_bytes = sizeof(tier_frame) + sizeof(index_t) + Replacement::frame_bytes;
  static constexpr byte_count block_table_bytes = sizeof(index_t);

  /// Where a frame's numbers are.
  T* numbers(index_t frame) {
    return memory.data() + frame * (memory.size() / static_cast<std::int64_t>(frames.size()));
  }

  /// Gives a claimed frame to a block; what its memory holds is somebody else's business.
  /// @pre  the block has no frame in this tier
  void enter(index_t at, index_t block) {
    frames[static_cast<std::size_t>(at)].block = block;
    block_frames[static_cast<std::size_t>(block)] = at;
  }
  /// Makes a frame with a block an empty one; its contents are lost.
  /// @pre  no transfer from or into it is waited for
  void empty(index_t at) {
    tier_frame& frame = frames[static_cast<std::size_t>(at)];
    block_frames[static_cast<std::size_t>(frame.block)] = -1;
    order.forget(at);
    free.push_back(at);
    frame = {};
  }
};

}  // namespace v0
}  // namespace zoomr

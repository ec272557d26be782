// SPDX-License-Identifier: Apache-2.0
// L3. Memory that has room for some blocks: frames, and which blocks are in them.
#pragma once

#include <zoomr/core/buffer.hpp>
#include <zoomr/paging/tiers/replacement.hpp>
#include <zoomr/paging/tiers/transfers.hpp>

#include <vector>  // std::vector

namespace zoomr::inline v0 {

/// Room for one block, and what goes on in it.
struct tier_frame {
  index_t block = -1;   // -1: empty
  bool dirty = false;   // the file has something else, or nothing
  ticket arriving = 0;  // a transfer into it that has not been waited for
  ticket leaving = 0;   // a transfer to the file that has not been waited for
};

/// Frames, each with room for one block. A frame is in one of three states: empty (in `free`), claimed (taken from it,
/// with no block yet), or with a block that `frame_of` finds. tiered_blocks keeps its parts in step.
template <class T, replacement Replacement>
struct tier {
  std::vector<tier_frame> frames;
  std::vector<index_t> block_frames;  // [blocks]  -1: not here
  std::vector<index_t> free;          // empty frames
  Replacement order;
  buffer<T> memory;  // [frames, numbers of a block]

  /// @param count  frames
  /// @throws error(capacity) without memory
  tier(index_t count, index_t layers, index_t blocks, std::int64_t block_numbers)
      : frames(static_cast<std::size_t>(count)),
        block_frames(static_cast<std::size_t>(blocks), -1),
        order(count, layers),
        memory(count * block_numbers) {
    free.reserve(frames.size());
    for (index_t s = count; s-- > 0;) free.push_back(s);
  }

  /// Of the tables, for each frame and for each block.
  static constexpr byte_count frame_table_bytes = sizeof(tier_frame) + sizeof(index_t) + Replacement::frame_bytes;
  static constexpr byte_count block_table_bytes = sizeof(index_t);

  index_t count() const { return static_cast<index_t>(frames.size()); }
  tier_frame& at(index_t frame) { return frames[static_cast<std::size_t>(frame)]; }
  /// -1: the block has none.
  index_t frame_of(index_t block) const { return block_frames[static_cast<std::size_t>(block)]; }
  /// Where a frame's numbers are.
  T* numbers(index_t frame) { return memory.data() + frame * (memory.size() / count()); }

  /// Claims an empty frame.
  /// @pre  there is one
  index_t claim() {
    const index_t frame = free.back();
    free.pop_back();
    return frame;
  }
  /// Gives a claimed frame to a block.
  /// @pre  the block has no frame
  void enter(index_t frame, index_t block) {
    at(frame).block = block;
    block_frames[static_cast<std::size_t>(block)] = frame;
  }
  /// Makes a frame with a block an empty one; its contents are lost.
  /// @pre  nothing goes on in it
  void empty(index_t frame) {
    block_frames[static_cast<std::size_t>(at(frame).block)] = -1;
    order.forget(frame);
    free.push_back(frame);
    at(frame) = {};
  }
};

}  // namespace zoomr::inline v0

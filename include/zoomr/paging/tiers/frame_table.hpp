// SPDX-License-Identifier: Apache-2.0
// L3. Which blocks are in a memory that has room for some of them: of a tier of a host's cache (tier.hpp).
#pragma once

#include <zoomr/paging/tiers/replacement.hpp>

#include <vector>  // std::vector

namespace zoomr::inline v0 {

/// Frames, each with room for one block. A frame is in one of three states: empty (in `free`), claimed (taken from it,
/// with no block yet), or with a block that `frame_of` finds.
///
/// Plain data: what is in the memory, and what goes on there, is its owner's business.
/// @tparam Frame  its `block` is -1 where there is none, as in one that is made by default
template <class Frame, replacement Replacement>
struct frame_table {
  std::vector<Frame> frames;
  std::vector<index_t> block_frames;  // [blocks]  -1: not here
  std::vector<index_t> free;          // empty frames
  Replacement order;

  /// @param count  frames
  frame_table(index_t count, index_t layers, std::int64_t blocks)
      : frames(static_cast<std::size_t>(count)),
        block_frames(static_cast<std::size_t>(blocks), -1),
        order(count, layers) {
    free.reserve(frames.size());
    for (index_t s = count; s-- > 0;) free.push_back(s);
  }

  /// Of the tables, for each frame and for each block.
  static constexpr byte_count frame_table_bytes = sizeof(Frame) + sizeof(index_t) + Replacement::frame_bytes;
  static constexpr byte_count block_table_bytes = sizeof(index_t);

  index_t count() const { return static_cast<index_t>(frames.size()); }
  Frame& at(index_t frame) { return frames[static_cast<std::size_t>(frame)]; }
  /// -1: the block has none.
  index_t frame_of(std::int64_t block) const { return block_frames[static_cast<std::size_t>(block)]; }

  /// Claims an empty frame.
  /// @pre  there is one
  index_t claim() {
    const index_t frame = free.back();
    free.pop_back();
    return frame;
  }
  /// Gives a claimed frame to a block.
  /// @pre  the block has no frame
  void enter(index_t frame, std::int64_t block) {
    at(frame).block = static_cast<decltype(Frame::block)>(block);
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

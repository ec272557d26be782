// SPDX-License-Identifier: Apache-2.0
// L1. Pieces of one block of memory: the arrays of a device cache, of its pinned tables, of a calibration. The same
// function takes the pieces twice, first without a block, to count how many bytes they need, then from the caller's
// memory: so the two cannot disagree.
#pragma once

#include <zoomr/core/types.hpp>

#include <cstddef>  // std::byte

namespace zoomr::inline v0 {

/// Hands out pieces of one block of memory, each aligned to 256 bytes; without a block it only counts, up to
/// `too_many_bytes`. It owns nothing, and gives nothing back.
/// @pre  the block is aligned to 256 bytes, and has room for all that is taken: nothing is checked
class carver {
 public:
  static constexpr byte_count alignment = 256;

  carver() = default;
  explicit carver(void* block) : block_(static_cast<std::byte*>(block)) {}

  /// The next piece, for `count` objects whose contents are what the block held; nullptr without a block.
  template <class T>
  T* take(std::int64_t count) {
    T* piece = block_ == nullptr ? nullptr : reinterpret_cast<T*>(block_ + used_);
    const byte_count bytes = bounded_product({count, sizeof(T)});
    used_ += (bytes + alignment - 1) / alignment * alignment;
    if (used_ > too_many_bytes) used_ = too_many_bytes;
    return piece;
  }
  /// Bytes taken so far, with the gaps between pieces.
  byte_count used() const { return used_; }

 private:
  std::byte* block_ = nullptr;
  byte_count used_ = 0;
};

}  // namespace zoomr::inline v0

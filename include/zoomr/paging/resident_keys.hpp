// SPDX-License-Identifier: Apache-2.0
// L3. Keys that must be at hand while their pages may be anywhere: a second copy of some KV lanes, in one memory.
#pragma once

#include <zoomr/core/buffer.hpp>
#include <zoomr/paging/paged_kv_lane.hpp>

#include <algorithm>  // std::copy_n

namespace zoomr {
inline namespace v0 {

/// Keys as they are stored, with the scales of their rows where they have any: [page][KV lane][16][width]. Pages have
/// the numbers of a pool beside it, so that the page table of a sequence says where its keys are here too; forks share
/// them, and a page that no table names holds nothing. Whoever writes or copies a key in the pool does so here.
template <class T>
class resident_keys {
 public:
  resident_keys() = default;
  resident_keys(index_t lanes, index_t width, index_t pages)
      : lanes_(lanes), width_(width), memory_(std::int64_t{pages} * page_numbers()) {}

  static byte_count page_bytes(index_t lanes, index_t width) {
    return std::int64_t{lanes} * head_numbers<T>(width) * static_cast<byte_count>(sizeof(T));
  }
  static byte_count bytes(index_t lanes, index_t width, index_t pages) {
    return bounded_product({pages, page_bytes(lanes, width)});
  }

  /// One KV lane of a sequence; it has keys alone.
  /// @param lane   [0, lanes)
  /// @param pages  the sequence's page table, which must stay as long as the KV lane is used
  paged_kv_lane<T> kv_lane(index_t lane, view<const index_t> pages) {
    return {memory_.data() + lane * head_numbers<T>(width_),
            page_numbers(),
            {width_, 0, stored_size<T>(width_), 0, 0},
            pages};
  }
  void copy_page(index_t from, index_t to) {
    std::copy_n(memory_.data() + from * page_numbers(), page_numbers(), memory_.data() + to * page_numbers());
  }

 private:
  std::int64_t page_numbers() const { return lanes_ * head_numbers<T>(width_); }

  index_t lanes_ = 0;
  index_t width_ = 0;
  buffer<T> memory_;
};

}  // namespace v0
}  // namespace zoomr

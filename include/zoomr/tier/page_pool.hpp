// SPDX-License-Identifier: Apache-2.0
// L3. Keys and values in pages of 16 tokens, taken from one pool that never moves them.
//
// A page has a part in each layer, and in it keys then values of all KV heads, side by side:
//   [layer][page][key | value][kv_head][token][head_dim]
// so that a segment of all heads is one piece of memory for each page.
#pragma once

#include <zoomr/core/buffer.hpp>
#include <zoomr/core/paged_lane.hpp>
#include <zoomr/core/shape.hpp>

#include <vector>  // std::vector

namespace zoomr {
inline namespace v0 {

/// The numbers of a fixed number of pages, handed out and taken back one by one.
class page_stock {
 public:
  explicit page_stock(index pages) : pages_(pages) {
    free_.reserve(static_cast<std::size_t>(pages));
    for (index page = pages; page-- > 0;) free_.push_back(page);
  }

  index pages() const { return pages_; }
  index free_pages() const { return static_cast<index>(free_.size()); }
  index used_pages() const { return pages_ - free_pages(); }

  /// @pre free_pages() > 0
  index take() {
    const index page = free_.back();
    free_.pop_back();
    return page;
  }
  void give_back(index page) { free_.push_back(page); }

 private:
  index pages_;
  std::vector<index> free_;
};

/// Pages with their memory, on the host.
template <class T>
class page_pool : public page_stock {
 public:
  using lane_type = paged_lane<T>;

  page_pool(const shape& model, index pages) : page_stock(pages), shape_(model), memory_(elements(model, pages)) {}

  static byte_count page_bytes(const shape& model) { return elements(model, 1) * static_cast<byte_count>(sizeof(T)); }

  paged_lane<T> lane(index layer, index kv_head, view<const index> pages) {
    const std::int64_t head = static_cast<std::int64_t>(page_tokens) * shape_.head_dim;
    const std::int64_t stride = 2 * shape_.kv_heads * head;
    T* base = memory_.data() + std::int64_t{layer} * this->pages() * stride + kv_head * head;
    return {base, stride, shape_.kv_heads * head, shape_.head_dim, pages};
  }

 private:
  static std::int64_t elements(const shape& model, index pages) {
    return std::int64_t{2} * model.lanes() * pages * page_tokens * model.head_dim;
  }

  shape shape_;
  buffer<T> memory_;
};

}  // namespace v0
}  // namespace zoomr

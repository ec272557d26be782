// SPDX-License-Identifier: Apache-2.0
// L3. Keys and values in pages of 16 tokens, taken from one pool that never moves them.
//
// A page has a part in each layer, and in it keys then values of all KV heads, side by side:
//   [layer][page][key | value][kv_head][token][width]
// (with the scales of a KV head's rows after them, where these have any) so that a segment of all heads is one piece
// of memory for each page.
#pragma once

#include <zoomr/core/buffer.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/core/table.hpp>
#include <zoomr/core/token_range.hpp>
#include <zoomr/paging/block_shape.hpp>
#include <zoomr/paging/paged_kv_lane.hpp>
#include <zoomr/paging/tiers/tier_frames.hpp>

#include <algorithm>  // std::copy_n

namespace zoomr::inline v0 {

/// The numbers of a fixed number of pages, handed out and taken back one by one: which sequences have which is in the
/// sequences' page tables alone. A page may be in several tables; how many there are is counted here, and it is free
/// when none is left. The page that came back last is the next to go.
/// @cost  O(1) for each page; memory for all of them is allocated at construction
class page_stock {
 public:
  explicit page_stock(index_t pages) : pages_(pages), holders_(pages) {
    free_.reserve(pages);
    for (index_t page = pages; page-- > 0;) free_.push_back(page);
  }
  static byte_count bytes(index_t pages) { return std::int64_t{pages} * static_cast<byte_count>(2 * sizeof(index_t)); }
  page_stock(page_stock&&) = default;
  virtual ~page_stock() = default;

  index_t pages() const { return pages_; }
  index_t free_pages() const { return free_.size(); }
  index_t used_pages() const { return pages_ - free_pages(); }

  /// The page that `take` will give when it has given `later` others.
  /// @pre free_pages() > later
  index_t next(index_t later = 0) const { return free_[free_.size() - 1 - later]; }
  /// A free page, with contents that mean nothing, for one page table.
  /// @pre free_pages() > 0
  index_t take() {
    const index_t page = free_.back();
    free_.pop_back();
    holding(page) = 1;
    return page;
  }
  /// One more table names the page.
  /// @pre the page was taken
  void share(index_t page) {
    ++holding(page);
    ++shares_;
  }
  /// One table names the page no more.
  /// @pre the page was taken, and the table has forgotten it: neither is checked
  void give_back(index_t page) {
    if (--holding(page) > 0) {
      --shares_;
      return;
    }
    forget(page);
    free_.push_back(page);
  }
  /// Page tables that name the page; 0: it is free.
  index_t holders(index_t page) const { return holders_[page]; }
  /// Some page is in several tables.
  bool any_shared() const { return shares_ > 0; }
  /// What the page holds is no longer needed.
  virtual void forget(index_t) {}

 private:
  index_t& holding(index_t page) { return holders_[page]; }

  index_t pages_;
  table<index_t> free_;
  table<index_t> holders_;   // [pages]  tables that name each
  std::int64_t shares_ = 0;  // entries of tables beyond the first of each page
};

/// Pages with their memory, on the host. Nothing moves: calls that bring pages, or write them to a file, do nothing
/// here. A cache uses either pool through the same interface, and is compiled for one of them
/// (policy/placement/placement.hpp).
template <class T>
class page_pool : public page_stock {
 public:
  using number = T;
  using kv_lane_type = paged_kv_lane<T>;

  static constexpr bool may_fail = false;   // pages may fail to come
  static constexpr bool owns_pages = true;  // takes them from its stock; an engine's come with each step

  page_pool(const shape& model, index_t pages) : page_stock(pages), shape_(model), memory_(elements(model, pages)) {}

  /// From a config: the bytes of tiers, and what others take of them, matter to a tiered pool only.
  static page_pool make(const block_shape& block, index_t pages, const tier_bytes&, byte_count) {
    return page_pool(block.model, pages);
  }
  /// Where its pages are.
  static pool_bytes bytes(const block_shape& block, index_t pages, const tier_bytes&, byte_count) {
    return {bounded_product({pages, page_bytes(block.model)}), 0, 0};
  }

  byte_count bytes_of_page() const { return page_bytes(shape_); }
  static byte_count page_bytes(const shape& model) { return elements(model, 1) * static_cast<byte_count>(sizeof(T)); }

  /// Where the tokens of one KV lane are.
  /// @param pages  the sequence's page table, which must stay as long as the KV lane is used
  paged_kv_lane<T> kv_lane(index_t layer, index_t kv_head, view<const index_t> pages) {
    const std::int64_t stride = shape_.kv_heads * head_numbers<T>(shape_);
    T* base =
        memory_.data() + std::int64_t{layer} * this->pages() * stride + kv_head * head_numbers<T>(shape_.head_dim);
    return {base, stride, kv_rows::in_page<T>(shape_, shape_.kv_heads, kv_head), pages};
  }

  /// Copies all that one page holds to another.
  /// @cost  reads and writes page_bytes(model)
  void copy_page(index_t from, index_t to) {
    const std::int64_t part = shape_.kv_heads * head_numbers<T>(shape_);
    for (index_t layer = 0; layer < shape_.layers; ++layer) {
      T* const base = memory_.data() + std::int64_t{layer} * this->pages() * part;
      std::copy_n(base + from * part, part, base + to * part);
    }
  }

  /// A layer is read from now on.
  void begin_layer(index_t) {}
  /// Starts bringing what some KV heads of a layer hold in some slots to memory, as much as half of it can hold.
  void prefetch(index_t, token_range, view<const index_t>, token_range) {}
  /// What is in memory of it will be read soon, so that others go first.
  void touch(index_t, token_range, view<const index_t>, token_range) {}

 private:
  static std::int64_t elements(const shape& model, index_t pages) {
    return std::int64_t{model.kv_lanes()} * pages * head_numbers<T>(model);
  }

  shape shape_;
  buffer<T> memory_;
};

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L3. A pool without pages of its own: those of an engine, seen through its block tables.
#pragma once

#include <zoomr/paging/engine_memory.hpp>
#include <zoomr/paging/page_pool.hpp>

namespace zoomr {
inline namespace v0 {

/// One KV lane in an engine's pages; as paged_kv_lane. `pages` is the sequence's block table.
template <class T>
struct engine_kv_lane {
  using number = T;

  T* base = nullptr;  // the KV lane's keys in page 0 of its layer
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t value_offset = 0;  // elements from a key to its value
  index_t in_page = 1;            // tokens of a page
  index_t head_dim = 0;
  view<const index_t> pages;

  T* key(index_t slot) const {
    if (in_page == 1) return base + pages[slot] * page_stride;  // a division for each token takes its time
    return base + pages[slot / in_page] * page_stride + slot % in_page * token_stride;
  }
  T* writable_key(index_t slot) const { return key(slot); }
  T* value(index_t slot) const { return key(slot) + value_offset; }
  engine_kv_lane<const T> read_only() const {
    return {base, page_stride, token_stride, value_offset, in_page, head_dim, pages};
  }
  std::int64_t row_stride() const { return token_stride; }
  static constexpr bool holds(index_t) { return true; }
  /// Each 16 slots lie in one page.
  bool whole_pages() const { return in_page % page_tokens == 0; }
};

/// What a cache asks of a pool (page_pool.hpp), for an engine's memory. Nothing is taken or given back here: the engine
/// says with each step which pages a sequence has.
template <class T>
class engine_pool : public page_stock {
  static_assert(!scales_rows<T>, "engine_pages: an engine's pages have no room for scales of rows: use another type");

 public:
  using number = T;
  using kv_lane_type = engine_kv_lane<T>;

  static constexpr bool may_fail = false;
  static constexpr bool owns_pages = false;

  engine_pool(const shape& model, const engine_memory& memory) : page_stock(0), shape_(model), memory_(memory) {}

  /// Of the pages of one sequence: what the engine holds for it.
  byte_count bytes_of_page() const {
    return std::int64_t{2} * shape_.kv_lanes() * memory_.page_tokens * shape_.head_dim *
           static_cast<byte_count>(sizeof(T));
  }

  engine_kv_lane<T> kv_lane(index_t layer, index_t kv_head, view<const index_t> pages) {
    T* const keys = static_cast<T*>(memory_.keys[layer]);
    T* const values = static_cast<T*>(memory_.values[layer]);
    // The two may lie in different arrays: their distance is counted in addresses.
    const auto apart = (reinterpret_cast<std::intptr_t>(values) - reinterpret_cast<std::intptr_t>(keys)) /
                       static_cast<std::intptr_t>(sizeof(T));
    return {keys + kv_head * memory_.head_stride,
            memory_.page_stride,
            memory_.token_stride,
            apart,
            memory_.page_tokens,
            shape_.head_dim,
            pages};
  }
  const engine_memory& memory() const { return memory_; }

  void begin_layer(index_t) {}
  void prefetch(index_t, token_range, view<const index_t>, token_range) {}
  void touch(index_t, token_range, view<const index_t>, token_range) {}

 private:
  shape shape_;
  engine_memory memory_;
};

}  // namespace v0
}  // namespace zoomr

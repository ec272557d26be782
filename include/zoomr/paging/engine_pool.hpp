// SPDX-License-Identifier: Apache-2.0
// L3. A pool without pages of its own: those of an engine, seen through its block tables.
#pragma once

#include <zoomr/paging/engine_memory.hpp>
#include <zoomr/paging/page_pool.hpp>

namespace zoomr::inline v0 {

/// One KV lane in an engine's pages; as paged_kv_lane. `pages` is the sequence's block table.
template <class T>
struct engine_kv_lane {
  using number = T;

  T* base = nullptr;  // the KV lane's keys in page 0 of its layer
  std::int64_t page_stride = 0;
  index_t in_page = 1;  // tokens of a page
  kv_rows rows;         // value_offset: in page 0
  std::int64_t value_page_stride = 0;
  view<const index_t> pages;

  T* key(index_t slot) const { return in_pages(base, page_stride, rows.key_stride, slot); }
  T* writable_key(index_t slot) const { return key(slot); }
  /// @param key  that of the slot
  template <class Key>
  Key* value_of(Key* key, index_t slot) const {
    if (rows.value_stride == rows.key_stride && value_page_stride == page_stride) return key + rows.value_offset;
    return in_pages(base + rows.value_offset, value_page_stride, rows.value_stride, slot);
  }
  T* value(index_t slot) const { return value_of(key(slot), slot); }
  engine_kv_lane<const T> read_only() const { return {base, page_stride, in_page, rows, value_page_stride, pages}; }
  static constexpr bool holds(index_t) { return true; }
  /// Each 16 slots are in one page.
  bool whole_pages() const { return in_page % page_tokens == 0; }

 private:
  T* in_pages(T* first, std::int64_t of_page, std::int64_t of_token, index_t slot) const {
    if (in_page == 1) return first + pages[slot] * of_page;  // a division for each token takes its time
    return first + pages[slot / in_page] * of_page + slot % in_page * of_token;
  }
};

/// The interface of a pool (page_pool.hpp) for an engine's memory. Nothing is taken or given back here: the engine
/// passes the pages of a sequence with each step.
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
    const std::int64_t size = stored_size<T>(shape_.head_dim) + stored_size<T>(shape_.stored_value_width());
    return std::int64_t{shape_.kv_lanes()} * memory_.page_tokens * size * static_cast<byte_count>(sizeof(T));
  }

  engine_kv_lane<T> kv_lane(index_t layer, index_t kv_head, view<const index_t> pages) {
    T* const keys = static_cast<T*>(memory_.keys[layer]);
    const kv_strides of_keys = stored(memory_.strides_of_keys());
    kv_rows rows{shape_.head_dim, shape_.value_width(), of_keys.token, of_keys.token, 0};
    std::int64_t value_page_stride = of_keys.page;
    if (!shape_.values_in_keys) {
      const kv_strides of_values = stored(memory_.strides_of_values());
      // The two may be in different arrays: their distance is counted in addresses.
      const auto offset =
          reinterpret_cast<std::intptr_t>(memory_.values[layer]) - reinterpret_cast<std::intptr_t>(keys);
      rows.value_offset = offset / static_cast<std::intptr_t>(sizeof(T)) + kv_head * (of_values.head - of_keys.head);
      rows.value_stride = of_values.token;
      value_page_stride = of_values.page;
    }
    return {keys + kv_head * of_keys.head, of_keys.page, memory_.page_tokens, rows, value_page_stride, pages};
  }
  const engine_memory& memory() const { return memory_; }

  void begin_layer(index_t) {}
  void prefetch(index_t, token_range, view<const index_t>, token_range) {}
  void touch(index_t, token_range, view<const index_t>, token_range) {}

 private:
  static kv_strides stored(const kv_strides& numbers) {
    return {stored_size<T>(numbers.page), stored_size<T>(numbers.head), stored_size<T>(numbers.token)};
  }

  shape shape_;
  engine_memory memory_;
};

}  // namespace zoomr::inline v0

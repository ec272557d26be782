// SPDX-License-Identifier: Apache-2.0
// L3. What attention sees of a tiered pool: KV lanes.
#pragma once

#include <zoomr/paging/paged_kv_lane.hpp>

namespace zoomr::inline v0 {

/// One KV lane of a tiered pool: as paged_kv_lane, but a pointer is valid only until the next few pages are reached
/// (`Pool::guarded`), by this lane or another of the pool. Reading a key brings its page to memory, and waits.
/// @throws error(storage) from both functions, if the page does not come
template <class Pool>
struct tiered_kv_lane {
  using number = typename Pool::number;

  Pool* pool = nullptr;
  index_t piece = 0;             // of each page
  std::int64_t head_offset = 0;  // elements from the piece's first key to the KV lane's
  kv_rows rows;
  view<const index_t> pages;  // [pages of the sequence]

  const number* key(index_t slot) const {
    return pool->reach(piece, pages[slot / page_tokens]) + head_offset + in_page(slot);
  }
  number* writable_key(index_t slot) const {
    return pool->reach_to_write(piece, pages[slot / page_tokens]) + head_offset + in_page(slot);
  }
  template <class Key>
  Key* value_of(Key* key, index_t slot) const {
    return key + rows.to_value(slot % page_tokens);
  }
  bool holds(index_t slot) const { return pages[slot / page_tokens] >= 0; }
  static constexpr bool whole_pages() { return true; }

 private:
  std::int64_t in_page(index_t slot) const { return slot % page_tokens * rows.key_stride; }
};

}  // namespace zoomr::inline v0

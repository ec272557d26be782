// SPDX-License-Identifier: Apache-2.0
// L3. Where keys and values are: pages of 16 tokens. It owns nothing. Attention, summaries and eviction are templates
// over this type, tiered_kv_lane and engine_kv_lane, and read the key in a slot from each; the rest of that key's page
// is after it.
#pragma once

#include <zoomr/core/block_rows.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/core/view.hpp>

#include <cstring>  // std::memcpy

namespace zoomr::inline v0 {

inline constexpr index_t page_tokens = 16;

/// Pages that hold `tokens` tokens.
constexpr index_t pages_for(index_t tokens) { return tokens / page_tokens + (tokens % page_tokens != 0 ? 1 : 0); }

/// What the keys, or the values, of one KV head take in a page, in `T`: [16][width], and after them the scales of their
/// rows where these have any, as floats [16].
template <class T>
constexpr std::int64_t head_numbers(index_t width) {
  if (width == 0) return 0;
  return page_tokens * (stored_size<T>(width) + (scales_rows<T> ? static_cast<std::int64_t>(sizeof(float)) : 0));
}
/// Those that keys and values of one KV head take together.
template <class T>
constexpr std::int64_t head_numbers(const shape& model) {
  return head_numbers<T>(model.head_dim) + head_numbers<T>(model.stored_value_width());
}

/// The place of the scale of a row, which is that of the token in `slot`; see head_numbers.
/// @param row     in a page
/// @param stride  from the row of a token to that of the next one
template <class T>
auto* scale_of(T* row, index_t slot, std::int64_t stride) {
  static_assert(scales_rows<T> && sizeof(T) == 1);
  const index_t token = slot % page_tokens;
  return row + (page_tokens - token) * stride + token * static_cast<index_t>(sizeof(float));
}

/// The scale of a row; 1 where rows have none.
template <class T>
float row_scale([[maybe_unused]] const T* row, [[maybe_unused]] index_t slot, [[maybe_unused]] std::int64_t stride) {
  float scale = 1.0f;
  if constexpr (scales_rows<T>) std::memcpy(&scale, scale_of(row, slot, stride), sizeof scale);
  return scale;
}

/// How the rows of a KV lane are made: widths are numbers, the rest counts what is stored, in `T`.
struct kv_rows {
  index_t key_width = 0;
  index_t value_width = 0;
  std::int64_t key_stride = 0;    // from a token's key to that of the next one in the same 16 slots
  std::int64_t value_stride = 0;  // the same of values
  std::int64_t value_offset = 0;  // from the key of the first of 16 slots to its value

  /// Of one of some KV heads that are stored as [key | value][heads][16][width].
  template <class T>
  static constexpr kv_rows in_page(const shape& model, index_t heads, index_t head) {
    const std::int64_t key = stored_size<T>(model.head_dim), value = stored_size<T>(model.value_width());
    if (model.values_in_keys) return {model.head_dim, model.value_width(), key, key, 0};
    const std::int64_t keys = head_numbers<T>(model.head_dim), values = head_numbers<T>(model.value_width());
    return {model.head_dim, model.value_width(), key, value, heads * keys + head * (values - keys)};
  }
  /// From the key in a slot to its value.
  /// @param place  of the slot in its page
  std::int64_t to_value(index_t place) const { return value_offset + place * (value_stride - key_stride); }
};

/// One KV lane's keys and values, by slot: a slot is the token's place in its sequence's pages, the position unless
/// eviction has compacted the KV lane (policy/slot_map.hpp). Numbers are as stored, without the scales of the config.
template <class T>
struct paged_kv_lane {
  using number = T;

  T* base = nullptr;             // the KV lane's keys in page 0 of its layer
  std::int64_t page_stride = 0;  // elements from page to page
  kv_rows rows;
  view<const index_t> pages;  // [pages of the sequence] ids in the pool

  T* key(index_t slot) const {
    return base + pages[slot / page_tokens] * page_stride + slot % page_tokens * rows.key_stride;
  }
  T* writable_key(index_t slot) const { return key(slot); }
  /// The value of the key in a slot; no page is fetched for it.
  template <class Key>
  Key* value_of(Key* key, index_t slot) const {
    return key + rows.to_value(slot % page_tokens);
  }
  T* value(index_t slot) const { return value_of(key(slot), slot); }
  /// The same, to be read only.
  paged_kv_lane<const T> read_only() const { return {base, page_stride, rows, pages}; }
  /// Its page has not been given back.
  bool holds(index_t slot) const { return pages[slot / page_tokens] >= 0; }
  /// Such 16 slots have their rows that far apart: true of all pages but small ones of an engine.
  static constexpr bool whole_pages() { return true; }
};

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L3. Where keys and values lie: pages of 16 tokens. It owns nothing. Attention, summaries and eviction are templates
// over this type, tiered_kv_lane and engine_kv_lane, and ask each for the key in a slot; the rest of that key's page
// lies behind it.
#pragma once

#include <zoomr/core/storage.hpp>
#include <zoomr/core/view.hpp>

#include <cstring>  // std::memcpy

namespace zoomr {
inline namespace v0 {

inline constexpr index_t page_tokens = 16;

/// Pages that hold `tokens` tokens.
constexpr index_t pages_for(index_t tokens) { return tokens / page_tokens + (tokens % page_tokens != 0 ? 1 : 0); }

/// Numbers that the keys, or the values, of one KV head take in a page: [16][head_dim], and behind them the scales of
/// their rows where these have any, as floats [16].
template <class T>
constexpr std::int64_t head_numbers(index_t head_dim) {
  return std::int64_t{page_tokens} * (head_dim + (scales_rows<T> ? static_cast<index_t>(sizeof(float)) : 0));
}

/// The place of the scale of a row, which is that of the token in `slot`; see head_numbers.
/// @param row  [head_dim] in a page
template <class T>
auto* scale_of(T* row, index_t slot, index_t head_dim) {
  static_assert(scales_rows<T> && sizeof(T) == 1);
  const index_t token = slot % page_tokens;
  return row + std::int64_t{page_tokens - token} * head_dim + token * static_cast<index_t>(sizeof(float));
}

/// The scale of a row; 1 where rows have none.
template <class T>
float row_scale([[maybe_unused]] const T* row, [[maybe_unused]] index_t slot, [[maybe_unused]] index_t head_dim) {
  float scale = 1.0f;
  if constexpr (scales_rows<T>) std::memcpy(&scale, scale_of(row, slot, head_dim), sizeof scale);
  return scale;
}

/// One KV lane's keys and values, by slot: a slot is the token's place in its sequence's pages, the position unless
/// eviction has compacted the KV lane (policy/slot_map.hpp). Numbers are as stored, without the scales of the config.
template <class T>
struct paged_kv_lane {
  using number = T;

  T* base = nullptr;              // the KV lane's keys in page 0 of its layer
  std::int64_t page_stride = 0;   // elements from page to page
  std::int64_t value_offset = 0;  // elements from a key to its value
  index_t head_dim = 0;
  view<const index_t> pages;  // [pages of the sequence] ids in the pool

  T* key(index_t slot) const {
    return base + pages[slot / page_tokens] * page_stride + static_cast<std::int64_t>(slot % page_tokens) * head_dim;
  }
  T* writable_key(index_t slot) const { return key(slot); }
  T* value(index_t slot) const { return key(slot) + value_offset; }
  /// The same, to be read only.
  paged_kv_lane<const T> read_only() const { return {base, page_stride, value_offset, head_dim, pages}; }
  /// Numbers from the row of a token to that of the next one in the same 16 slots.
  std::int64_t row_stride() const { return head_dim; }
  /// Its page has not been given back.
  bool holds(index_t slot) const { return pages[slot / page_tokens] >= 0; }
  /// Such 16 slots have their rows that far apart: true of all pages but small ones of an engine.
  static constexpr bool whole_pages() { return true; }
};

}  // namespace v0
}  // namespace zoomr

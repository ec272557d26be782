// SPDX-License-Identifier: Apache-2.0
// L3. Rows in pages: the key, or the value, of one token in one KV head, written, read as floats, and moved. Of a type
// whose rows have scales of their own (core/storage.hpp) the scale goes with the row.
#pragma once

#include <zoomr/core/shape.hpp>
#include <zoomr/math/products.hpp>
#include <zoomr/paging/paged_kv_lane.hpp>

#include <algorithm>  // std::copy_n, std::max, std::min
#include <cmath>      // std::abs
#include <limits>     // std::numeric_limits

namespace zoomr::inline v0::detail {

/// Stores a row, divided by `scale`, and by its own scale where rows have one. An infinity counts as the largest float,
/// NaN as 0.
/// @param from  [head_dim]
template <class T>
void store_row(view<const float> from, float scale, T* row, [[maybe_unused]] index_t slot) {
  if constexpr (scales_rows<T>) {
    float largest = 0.0f;
    for (const float x : from) largest = (std::max)(largest, std::abs(x));  // not NaN
    constexpr float end = (std::numeric_limits<float>::max)();
    const float own =
        largest > 0.0f ? (std::min)((std::min)(largest, end) / storage_traits<T>::largest / scale, end) : 1.0f;
    std::memcpy(static_cast<void*>(scale_of(row, slot, from.size())), &own, sizeof own);
    scale *= own;
  }
  narrow(fastest_cpu_path(), from, scale, row);
}

/// The same for a row of 16 bits.
template <class Number, class T>
void store_row(view<const Number> from, float scale, T* row, index_t slot) {
  float wide[shape::most_head_dim];
  widen(fastest_cpu_path(), from.data(), 1.0f, {wide, {from.size()}});
  store_row(view<const float>(wide, {from.size()}), scale, row, slot);
}

/// A row as floats, times `scale`, and times its own scale where rows have one.
/// @param to  [head_dim]
template <class T>
void read_row(const T* row, index_t slot, float scale, view<float> to) {
  if constexpr (scales_rows<T>) scale *= row_scale(row, slot, to.size());
  widen(fastest_cpu_path(), row, scale, to);
}

/// Moves a row from the place of one slot to that of another, where rows are side by side if they have scales.
template <class T>
void copy_row(const T* from, [[maybe_unused]] index_t from_slot, T* to, [[maybe_unused]] index_t to_slot,
              index_t width) {
  std::copy_n(from, stored_size<T>(width), to);
  if constexpr (scales_rows<T>) {
    std::copy_n(scale_of(from, from_slot, width), sizeof(float), scale_of(to, to_slot, width));
  }
}

/// Moves the value of one slot to another, unless it is in its key.
/// @param from_key, to_key  of those slots
template <class From, class To, class T>
void copy_value(const From& from, const T* from_key, index_t from_slot, const To& to, T* to_key, index_t to_slot) {
  const T* const value = from.value_of(from_key, from_slot);
  if (value == from_key) return;
  copy_row(value, from_slot, to.value_of(to_key, to_slot), to_slot, from.rows.value_width);
}

/// Keys of 16 slots, or of the first of them, are next to each other.
template <class Lane>
bool keys_side_by_side(const Lane& kv_lane) {
  return kv_lane.whole_pages() && kv_lane.rows.key_stride == stored_size<typename Lane::number>(kv_lane.rows.key_width);
}
/// Values do.
template <class Lane>
bool values_side_by_side(const Lane& kv_lane) {
  return kv_lane.whole_pages() &&
         kv_lane.rows.value_stride == stored_size<typename Lane::number>(kv_lane.rows.value_width);
}
/// Values are stored as far from their keys in all slots, so that rows of both are as far apart.
inline bool values_follow_keys(const kv_rows& rows) { return rows.value_stride == rows.key_stride; }

/// Products of queries with the keys of adjacent slots, as they are stored but for the scales of their own rows.
/// @param queries  [queries, head_dim]
/// @param first    the first slot of 16
/// @param out      [queries, slots]  of up to 16
/// @throws error(storage) if a page over tiers does not come
template <class Lane>
void key_products(const Lane& kv_lane, view<const float, 2> queries, index_t first, view<float, 2> out) {
  const index_t slots = out.extent(1);
  const index_t at_once = kv_lane.whole_pages() ? slots : 1;
  for (index_t t = 0; t < slots; t += at_once) {
    const auto* const keys = kv_lane.key(first + t);
    const view<float, 2> page_products(&out(0, t), {queries.extent(0), at_once}, {out.stride(0), 1});
    products(fastest_cpu_path(), queries, keys, kv_lane.rows.key_stride, page_products);
    if constexpr (scales_rows<typename Lane::number>) {  // their pages are whole
      for (index_t slot = 0; slot < slots; ++slot) {
        const float scale = row_scale(keys + slot * kv_lane.rows.key_stride, slot, kv_lane.rows.key_stride);
        for (index_t q = 0; q < queries.extent(0); ++q) page_products(q, slot) *= scale;
      }
    }
  }
}

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L3. Rows in pages: the key, or the value, of one token in one KV head, written, read as floats, and moved. Of a type
// whose rows have scales of their own (core/storage.hpp) the scale goes with the row.
#pragma once

#include <zoomr/math/products.hpp>
#include <zoomr/paging/paged_kv_lane.hpp>

#include <algorithm>  // std::copy_n, std::max, std::min
#include <cmath>      // std::abs
#include <limits>     // std::numeric_limits

namespace zoomr {
inline namespace v0 {
namespace detail {

/// Stores a row, divided by `scale`, and by its own scale where rows have one. An infinity counts as the largest float,
/// NaN as 0.
/// @param from  [head_dim]
template <class T>
void store_row(view<const float> from, float scale, T* row, [[maybe_unused]] index_t slot) {
  if constexpr (scales_rows<T>) {
    float largest = 0.0f;
    for (const float x : from) largest = (std::max)(largest, std::abs(x));  // not NaN
    constexpr float end = (std::numeric_limits<float>::max)();
    const float own = largest > 0.0f ? (std::min)((std::min)(largest, end) / 127.0f / scale, end) : 1.0f;
    std::memcpy(static_cast<void*>(scale_of(row, slot, from.size())), &own, sizeof own);
    scale *= own;
  }
  narrow(fastest_cpu_path(), from, scale, row);
}

/// A row as floats, times `scale`, and times its own scale where rows have one.
/// @param to  [head_dim]
template <class T>
void read_row(const T* row, index_t slot, float scale, view<float> to) {
  if constexpr (scales_rows<T>) scale *= row_scale(row, slot, to.size());
  widen(fastest_cpu_path(), row, scale, to);
}

/// Moves a row from the place of one slot to that of another.
template <class T>
void copy_row(const T* from, [[maybe_unused]] index_t from_slot, T* to, [[maybe_unused]] index_t to_slot,
              index_t head_dim) {
  std::copy_n(from, head_dim, to);
  if constexpr (scales_rows<T>) {
    std::copy_n(scale_of(from, from_slot, head_dim), sizeof(float), scale_of(to, to_slot, head_dim));
  }
}

/// products[q][t] *= the scale of the key of token t, where rows have scales.
/// @param keys      [tokens, head_dim]  of a page, from its first token on
/// @param products  [queries, tokens]
template <class T>
void scale_products([[maybe_unused]] const T* keys, [[maybe_unused]] index_t head_dim,
                    [[maybe_unused]] view<float, 2> products) {
  if constexpr (scales_rows<T>) {
    for (index_t t = 0; t < products.extent(1); ++t) {
      const float scale = row_scale(keys + std::int64_t{t} * head_dim, t, head_dim);
      for (index_t q = 0; q < products.extent(0); ++q) products(q, t) *= scale;
    }
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace zoomr

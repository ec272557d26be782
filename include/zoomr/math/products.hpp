// SPDX-License-Identifier: Apache-2.0
// L2. Work on many numbers, on any path of the processor: products of queries with rows, each in the contract's order
// (math/dot.hpp), exponentials and their sums, and numbers as they are stored, widened and narrowed.
#pragma once

#include <zoomr/core/view.hpp>
#include <zoomr/math/dot.hpp>
#include <zoomr/math/simd.hpp>
#include <zoomr/math/softmax.hpp>

namespace zoomr::inline v0::detail {

/// Where up to 16 rows are, evenly apart or not: how far from the first one. Places after the last row are the last
/// row's, so that kernels may take more rows than there are.
struct row_places {
  std::int64_t at[16] = {};

  row_places() = default;
  row_places(std::int64_t stride, index_t rows) {
    for (index_t r = 0; r < 16; ++r) at[r] = (r < rows ? r : rows - 1) * stride;
  }
};

/// Rows in such places.
template <class T>
struct placed_rows {
  const T* first = nullptr;
  const std::int64_t* places = nullptr;  // [16]

  const T* row(index_t r) const { return first + places[r]; }
};

}  // namespace zoomr::inline v0::detail

#define ZOOMR_EACH_CPU_PATH <zoomr/math/products.inl>
#include <zoomr/core/each_cpu_path.inl>

namespace zoomr::inline v0::detail {

/// out[q][r] = queries[q] . rows[r]
/// @param queries  [queries, dims]
/// @param rows     [out.extent(1), dims], `stride` numbers apart
/// @cost  reads the rows once for each four queries
template <class T>
void products(cpu_path path, view<const float, 2> queries, const T* rows, std::int64_t stride, view<float, 2> out) {
  const index_t dims = queries.extent(1);
  const auto in_vectors = [&](auto vectors) { products(vectors, queries, rows, stride, out); };
  if (dims % simd_dims == 0 && dispatch(path, in_vectors)) return;
  on_common_path(path, [&] {
    for (index_t q = 0; q < queries.extent(0); ++q) {
      for (index_t r = 0; r < out.extent(1); ++r) {
        out(q, r) = dot(queries[q].data(), rows + r * stride, dims);
      }
    }
  });
}

/// x[i] = exponential(x[i] - from)
inline void exponentials(cpu_path path, view<float> x, float from) {
  index_t i = 0;
  dispatch(path, [&](auto vectors) { i = exponentials(vectors, x.data(), x.size(), from); });
  for (; i < x.size(); ++i) x[i] = exponential(x[i] - from);
}

/// ln of the sum of exp(x): of nothing -inf, NaN if one is. Weights are added in units of 2^-40 of the largest, as
/// integers.
/// @param x  at most 2^22; overwritten
inline float log_sum_of_exponentials(cpu_path path, view<float> x) {
  float largest = -infinity;
  for (const float number : x) largest = is_nan(number) || number > largest ? number : largest;
  if (!(largest > -infinity && largest < infinity)) return largest;
  exponentials(path, x, largest);
  votes_t units = 0;
  for (const float weight : x) units += units_of(weight);
  return largest + logarithm(sum_of_units(units));
}

/// Numbers as they are stored, times `scale`, as floats: products rounded once, even where they are then added up.
/// @param from  [to.size()]
template <class T>
void widen(cpu_path path, const T* from, float scale, view<float> to) {
  index_t i = 0;
  dispatch(path, [&](auto vectors) { i = widen(vectors, from, scale, to.data(), to.size()); });
  on_common_path(path, [&] {
    for (; i < to.size(); ++i) to[i] = fused(number_at(from, i), scale, -0.0f);
  });
}

/// Floats, divided by `scale`, as they are stored.
/// @param to  [from.size()]; of blocks, whole ones
template <class T>
void narrow(cpu_path path, view<const float> from, float scale, T* to) {
  index_t i = 0;
  if constexpr (in_blocks<T>) {
    on_path(path, [&] {
      for (; i < from.size(); i += numbers_in_block) store_block(from.data() + i, scale, to + stored_size<T>(i));
    });
  } else {
    dispatch(path, [&](auto vectors) { i = narrow(vectors, from.data(), scale, to, from.size()); });
    on_common_path(path, [&] {
      for (; i < from.size(); ++i) to[i] = from_float<T>(from[i] / scale);
    });
  }
}

}  // namespace zoomr::inline v0::detail

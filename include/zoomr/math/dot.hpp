// SPDX-License-Identifier: Apache-2.0
// L2. The order of summation, which is part of the contract: a sum over dimensions is 32 strided partial sums
// (partial l takes dimensions l, l + 32, l + 64, ... in ascending order), then a halving tree
// (l += l + 16, 8, 4, 2, 1). A warp does the same with one thread for each partial, so that host and device
// select the same segments.
#pragma once

#include <zoomr/core/block_rows.hpp>
#include <zoomr/math/functions.hpp>

namespace zoomr::inline v0 {

inline constexpr index_t partial_sums = 32;

/// The sum of `partial_sums` numbers: the upper half is added to the lower, until one is left.
ZOOMR_HD inline float halving_sum(float* partial) {
#if ZOOMR_VECTORS  // the same additions; compilers take the loops below apart into single ones
  using lanes8 = float __attribute__((vector_size(32)));  // no wider than what was just stored, which a load waits for
  lanes8 eights[4];
  __builtin_memcpy(eights, partial, sizeof eights);
  const lanes8 b = (eights[0] + eights[2]) + (eights[1] + eights[3]);
  const auto c = __builtin_shufflevector(b, b, 0, 1, 2, 3) + __builtin_shufflevector(b, b, 4, 5, 6, 7);
  return (c[0] + c[2]) + (c[1] + c[3]);
#else
  for (index_t half = partial_sums / 2; half > 0; half /= 2) {
    for (index_t l = 0; l < half; ++l) partial[l] += partial[l + half];
  }
  return partial[0];
#endif
}

/// The sum of `term(acc, d)` over d in [0, n), in the contract's order; `term` adds dimension d to `acc`.
ZOOMR_CALLS_EITHER
template <class Term>
ZOOMR_HD inline float sum_over_dims(index_t n, Term term) {
  float partial[partial_sums] = {};
  index_t d = 0;
  for (; d + partial_sums <= n; d += partial_sums) {
    for (index_t l = 0; l < partial_sums; ++l) partial[l] = term(partial[l], d + l);
  }
  for (index_t l = 0; d + l < n; ++l) partial[l] = term(partial[l], d + l);
  return halving_sum(partial);
}

/// Several sums at once: `term(acc, d)` adds dimension d to each of them.
/// @tparam Sums  `at`, an array of floats
ZOOMR_CALLS_EITHER
template <class Sums, class Term>
ZOOMR_HD inline Sums several_sums_over_dims(index_t n, Term term) {
  constexpr index_t count = sizeof(Sums::at) / sizeof(float);
  float partial[std::size_t{count}][partial_sums] = {};
  Sums acc;
  for (index_t d = 0; d < n; ++d) {
    for (index_t i = 0; i < count; ++i) acc.at[i] = partial[i][d % partial_sums];
    acc = term(acc, d);
    for (index_t i = 0; i < count; ++i) partial[i][d % partial_sums] = acc.at[i];
  }
  for (index_t i = 0; i < count; ++i) acc.at[i] = halving_sum(partial[i]);
  return acc;
}

/// a . b in the contract's order.
/// @param a, b  [n]  b as it is stored
template <class T>
ZOOMR_HD inline float dot(const float* a, const T* b, index_t n) {
  return sum_over_dims(n, [=](float acc, index_t d) { return fused(a[d], number_at(b, d), acc); });
}

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L2. The order of summation, which is part of the contract: a sum over dimensions is 32 strided partial sums
// (partial l takes dimensions l, l + 32, l + 64, ... in ascending order), then a halving tree
// (l += l + 16, 8, 4, 2, 1). A warp does the same with one lane for each partial, so that host and device
// select the same segments.
#pragma once

#include <zoomr/math/functions.hpp>

namespace zoomr {
inline namespace v0 {

inline constexpr index partial_sums = 32;

/// The sum of `Width` numbers, each half added to the other: the lengths are constants, so that it stays in registers.
template <index Width>
ZOOMR_HD inline float halving_sum(float* partial) {
  if constexpr (Width == 1) {
    return partial[0];
  } else {
    for (index l = 0; l < Width / 2; ++l) partial[l] += partial[l + Width / 2];
    return halving_sum<Width / 2>(partial);
  }
}

/// The sum of `term(acc, d)` over d in [0, n), in the contract's order; `term` adds dimension d to `acc`.
ZOOMR_CALLS_EITHER
template <class Term>
ZOOMR_HD inline float sum_over_dims(index n, Term term) {
  float partial[partial_sums] = {};
  index d = 0;
  for (; d + partial_sums <= n; d += partial_sums) {
    for (index l = 0; l < partial_sums; ++l) partial[l] = term(partial[l], d + l);
  }
  for (index l = 0; d + l < n; ++l) partial[l] = term(partial[l], d + l);
  return halving_sum<partial_sums>(partial);
}

/// a . b in the contract's order.
/// @param a, b  [n]
template <class T>
ZOOMR_HD inline float dot(const float* a, const T* b, index n) {
  return sum_over_dims(n, [=](float acc, index d) { return fused(a[d], to_float(b[d]), acc); });
}

}  // namespace v0
}  // namespace zoomr

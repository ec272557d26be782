// SPDX-License-Identifier: Apache-2.0
// L2. The algebra of attention. Attention over any set of tokens is a state
//   m = max of the logits,  d = sum of exp(logit - m),  o = sum of exp(logit - m) v
// and the state of a disjoint union is the merge of the states: split-K, tiers and ranks are folds of states.
// Logits are natural here, and scaled already; on a device states count in units of ln 2 (attention/gather_output.cuh).
// The order of merging changes results by rounding only, but it changes them: each caller has one order (of the host's
// caches: attention/stretches.hpp).
// Source: the online softmax, arXiv:1805.02867.
#pragma once

#include <zoomr/core/block_rows.hpp>
#include <zoomr/math/functions.hpp>

namespace zoomr::inline v0 {

/// One head's attention over some tokens. `out` belongs to the caller and is not normalised until `finish`.
struct attention_state {
  float max = -infinity;  // largest logit so far
  float sum = 0.0f;       // sum of exp(logit - max)
  float* out = nullptr;   // [head_dim] sum of exp(logit - max) * value

  /// Raises `max` to at least `logit`; scales `sum` and `out` to match. NaN raises it too, so that it shows.
  /// @cost  an exponential and head_dim products if it is raised, else nothing
  ZOOMR_HD void raise(float logit, index_t head_dim) {
    if (logit <= max) return;
    const float scale = max == -infinity ? 0.0f : exponential(max - logit);
    max = logit;
    sum *= scale;
    for (index_t d = 0; d < head_dim; ++d) out[d] *= scale;
  }

  /// Adds `count` tokens with these logits and values [count, head_dim], adjacent; `raise` must have come before with
  /// the largest of the logits that are numbers. The logits become weights; NaN makes `sum` and `out` NaN.
  /// @cost  an exponential for each token, a fma for each token and dimension
  template <class T>
  ZOOMR_HD void add(float* logits, const T* values, index_t count, index_t head_dim) {
    weigh(logits, count);
    add_values(logits, values, count, head_dim, [head_dim](index_t t) { return std::int64_t{t} * head_dim; });
  }

  /// The first half of `add`: the logits become weights, which are added up.
  ZOOMR_HD void weigh(float* logits, index_t count) {
    const float from = max == -infinity ? 0.0f : max;
    for (index_t t = 0; t < count; ++t) logits[t] = exponential(logits[t] - from);
    for (index_t t = 0; t < count; ++t) sum += logits[t];
  }

  /// The second half: adds values under their weights.
  /// @param place  place(t): in `T`, from the first value to that of token t
  ZOOMR_CALLS_EITHER
  template <class T, class Place>
  ZOOMR_HD void add_values(const float* weights, const T* values, index_t count, index_t head_dim, Place place) {
    constexpr index_t block = 32;  // dimensions that stay in registers from token to token
    index_t d = 0;
    for (; d + block <= head_dim; d += block) {
      float part[block];
      for (index_t l = 0; l < block; ++l) part[l] = out[d + l];
      for (index_t t = 0; t < count; ++t) {
        const T* value = values + place(t);
        for (index_t l = 0; l < block; ++l) part[l] = fused(weights[t], number_at(value, d + l), part[l]);
      }
      for (index_t l = 0; l < block; ++l) out[d + l] = part[l];
    }
    for (index_t t = 0; t < count; ++t) {
      for (index_t l = d; l < head_dim; ++l) out[l] = fused(weights[t], number_at(values + place(t), l), out[l]);
    }
  }

  /// Adds a token whose value is zero: a learned sink. One of -inf changes nothing.
  /// @param logit  natural, a number
  /// @cost  two exponentials, and head_dim products if it is the largest logit so far
  ZOOMR_HD void add_sink(float logit, index_t head_dim) {
    if (logit == -infinity) return;
    raise(logit, head_dim);
    sum += exponential(logit - max);
  }

  /// Adds a state over other tokens, which stays as it is. Neither may be finished.
  ZOOMR_HD void merge(const attention_state& other, index_t head_dim) {
    if (other.sum == 0.0f) return;
    raise(other.max, head_dim);
    const float scale = exponential(other.max - max);
    sum = fused(scale, other.sum, sum);
    for (index_t d = 0; d < head_dim; ++d) out[d] = fused(scale, other.out[d], out[d]);
  }

  /// ln(sum of exp(logit)), natural; -inf for an empty state.
  ZOOMR_HD float log_sum() const { return sum == 0.0f ? -infinity : max + logarithm(sum); }

  /// Normalises `out`; an empty state gives zeros.
  /// @return ln(sum of exp(logit)), natural; -inf for an empty state
  ZOOMR_HD float finish(index_t head_dim) {
    if (sum == 0.0f) return -infinity;
    const float scale = 1.0f / sum;
    for (index_t d = 0; d < head_dim; ++d) out[d] *= scale;
    return log_sum();
  }
};

}  // namespace zoomr::inline v0

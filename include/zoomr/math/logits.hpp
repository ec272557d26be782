// SPDX-License-Identifier: Apache-2.0
// L2. From products of queries with keys, or with summaries, to logits: a scale, and perhaps a soft cap,
//   logit = cap * tanh(scale * q . k / cap)
// Natural logits are the host's, and those of scores and of observed attention everywhere. On a device gather_attend
// counts in units of ln 2, so that a weight is a power of 2; its task holds `scaled_logits` or `layer_logits`.
#pragma once

#include <zoomr/core/view.hpp>
#include <zoomr/math/functions.hpp>
#include <zoomr/math/simd.hpp>

#define ZOOMR_EACH_CPU_PATH <zoomr/math/logits.inl>
#include <zoomr/core/each_cpu_path.inl>

namespace zoomr::inline v0 {

inline constexpr float log2_of_e = 1.44269504f;
inline constexpr float ln_2 = 0.693147181f;

/// cap tanh(logit / cap): no logit is beyond `cap`, which an infinite one becomes. NaN stays.
/// @param logit  scaled
/// @param cap    positive, in the unit of the logit
/// @return  off by 3e-7 of itself at most, and 2^-149 caps
/// @source  Gemma 2, arXiv:2408.00118
ZOOMR_HD inline float soft_capped(float logit, float cap) {
  return fused(cap, hyperbolic_tangent(quotient(logit, cap)), -0.0f);  // rounded by itself
}

/// How scores become natural logits: an argument of aggregators that make masses of them. From a head dimension alone
/// it is the usual scale, 1 / sqrt(head_dim); it can be taken for that dimension, too.
struct score_logits {
  index_t head_dim = 1;
  float scale = 1.0f;
  float soft_cap = 0.0f;  // 0: none

  score_logits() = default;
  ZOOMR_HD score_logits(index_t dims)  // NOLINT: implicit, where there is no other scale
      : head_dim(dims), scale(quotient(1.0f, square_root(static_cast<float>(dims)))) {}
  ZOOMR_HD constexpr operator index_t() const { return head_dim; }  // NOLINT: implicit, for the same

  /// The logit of a score, and something on top, rounded as one sum.
  ZOOMR_HD float operator()(float score, float more) const {
    if (soft_cap == 0.0f) return fused(score, scale, more);
    return fused(soft_cap, hyperbolic_tangent(quotient(fused(score, scale, -0.0f), soft_cap)), more);
  }

  friend constexpr bool operator==(const score_logits&, const score_logits&) = default;
};

/// On a device: q . k times a scale.
struct scaled_logits {
  float scale = 1.0f;  // 1 / sqrt(head_dim), as a rule

  /// What queries are multiplied by beforehand, so that q . k is the logit in units of ln 2.
  ZOOMR_HD float of_query() const { return scale * log2_of_e; }
  /// From the product of such a query with a key to the logit: nothing is left to do.
  ZOOMR_HD float operator()(float logit) const { return logit; }
};

/// On a device: what a model has in one layer, each of which may be absent. Code of its own, so that models without any
/// of it pay nothing. The bias by distance is for lists that have the places of their tokens in a sequence
/// (`sequence_slot`); for others it is not read.
struct layer_logits {
  float scale = 1.0f;
  float cap = 0.0f;               // 0: none
  const float* sinks = nullptr;   // [heads]  on the device, natural; nullptr: none
  const float* slopes = nullptr;  // [heads]  on the device, natural, of a bias by distance; nullptr: none

  ZOOMR_HD float of_query() const { return cap == 0.0f ? scale * log2_of_e : scale / cap; }
  ZOOMR_HD float operator()(float product) const {
    return cap == 0.0f ? product : hyperbolic_tangent(product) * (cap * log2_of_e);
  }
  /// The learned sink of a query head of the model, in units of ln 2; -inf: none.
  ZOOMR_HD float sink(index_t head) const { return sinks == nullptr ? -infinity : sinks[head] * log2_of_e; }
};

}  // namespace zoomr::inline v0

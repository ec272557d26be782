// SPDX-License-Identifier: Apache-2.0
// L2. From q . k to a logit in units of ln 2, so that a weight is a power of 2: what gather_attend is given, as a part
// of its task. Caches use scaled_logits; an engine that calls gather_attend itself may cap them. The host's attention
// works with natural logits instead (math/attention_state.hpp).
#pragma once

#include <zoomr/math/functions.hpp>

namespace zoomr {
inline namespace v0 {

inline constexpr float log2_of_e = 1.44269504f;
inline constexpr float ln_2 = 0.693147181f;

/// q . k times a scale.
struct scaled_logits {
  float scale = 1.0f;  // 1 / sqrt(head_dim), as a rule

  /// What queries are multiplied by beforehand, so that q . k is the logit in units of ln 2.
  ZOOMR_HD float of_query() const { return scale * log2_of_e; }
  /// From the product of such a query with a key to the logit: nothing is left to do.
  ZOOMR_HD float operator()(float logit) const { return logit; }
};

/// cap tanh(q . k scale / cap): no logit is beyond `cap`.
/// @source  Gemma 2, arXiv:2408.00118
struct capped_logits {
  float scale = 1.0f;
  float cap = 50.0f;

  ZOOMR_HD float of_query() const { return scale / cap; }
  ZOOMR_HD float operator()(float share) const {
    const float size = share < 0.0f ? -share : share;
    const float e = exponential(-2.0f * size);  // tanh x = (1 - e^-2x) / (1 + e^-2x)
    const float tanh = quotient(1.0f - e, 1.0f + e);
    return (share < 0.0f ? -tanh : tanh) * (cap * log2_of_e);
  }
};

}  // namespace v0
}  // namespace zoomr

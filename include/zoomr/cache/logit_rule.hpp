// SPDX-License-Identifier: Apache-2.0
// L6. What a model does to its logits: the scale, and the variants of attention that change what a softmax sees.
//
//   logit  = soft cap of (scale * q . k) + alibi_slopes[head] * (position of the key - position of the query)
//   weight = exp(logit) / (exp(sink) + sum of exp(logit))
#pragma once

#include <zoomr/core/shape.hpp>
#include <zoomr/math/logits.hpp>

namespace zoomr::inline v0 {

/// What a model's attention does beside 1 / sqrt(head_dim) and a softmax. As it is made here, nothing: each part is
/// off.
///
/// Scale and soft cap hold wherever a logit of a token is made (attention, prompts, the audit, observed attention for
/// eviction), and for masses that are estimated from summaries. The bias by distance (ALiBi) holds for tokens alone: a
/// summary stands for tokens at many distances, and is chosen for what they hold; what is near, zones attend anyhow.
/// Scores that are only ranked are products as ever. Sinks belong to the denominator of attention, so that `out` and
/// `lse` contain them, as if they were a token whose value is zero; masses and shares that policies see, and the audit,
/// do not.
///
/// A window is the model's: what a query must not see, in the prompt too, whatever a policy would read. Pages that it
/// has passed are given back, unless the policy chooses; one that evicts is refused.
///
/// Tables are elsewhere and outlive the cache, which may read them in any call.
struct logit_rule {
  float scale = 0.0f;                   // of q . k; 0: 1 / sqrt(head_dim)
  float soft_cap = 0.0f;                // logit = soft_cap * tanh(scale * q . k / soft_cap); 0: none
  view<const float, 2> sinks = {};      // [layers, heads]  learned logits without a key; -inf: none; empty: no sinks
  view<const float> alibi_slopes = {};  // [heads]  at least 0; empty: none
  index_t window = 0;                   // a query at position i sees the keys at j with i - j < window; 0: all keys

  /// Logits are products times the scale: neither cap nor bias. A window changes none: it decides which there are.
  constexpr bool plain() const { return soft_cap == 0.0f && alibi_slopes.size() == 0; }

  /// What a product with a key is multiplied by.
  float scale_of(index_t head_dim) const {
    return scale > 0.0f ? scale : quotient(1.0f, square_root(static_cast<float>(head_dim)));
  }
  /// From scores of summaries to natural logits.
  score_logits of_scores(index_t head_dim) const {
    score_logits result(head_dim);
    result.scale = scale_of(head_dim);
    result.soft_cap = soft_cap;
    return result;
  }

  /// nullptr, or a sentence: what is wrong.
  constexpr const char* problem() const {
    if (!(scale >= 0.0f && scale < infinity)) return "config: logits.scale must be positive and finite, or 0";
    if (!(soft_cap >= 0.0f && soft_cap < infinity)) return "config: logits.soft_cap must be positive and finite, or 0";
    if (window < 0) return "config: logits.window must be at least 1, or 0 for none";
    for (index_t layer = 0; layer < sinks.extent(0); ++layer) {
      for (index_t head = 0; head < sinks.extent(1); ++head) {
        if (!(sinks(layer, head) < infinity)) return "config: logits.sinks must be finite, or -inf for no sink";
      }
    }
    for (const float slope : alibi_slopes) {
      if (!(slope >= 0.0f && slope < infinity)) {
        return "config: logits.alibi_slopes must be finite and at least 0: they are multiplied by -distance";
      }
    }
    return nullptr;
  }
};

}  // namespace zoomr::inline v0

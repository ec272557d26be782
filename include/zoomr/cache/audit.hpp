// SPDX-License-Identifier: Apache-2.0
// L6. What full attention would have got: for audits, at the cost of full attention's keys.
#pragma once

#include <zoomr/core/paged_lane.hpp>
#include <zoomr/math/attention_state.hpp>
#include <zoomr/math/dot.hpp>

#include <algorithm>  // std::max, std::min

namespace zoomr {
inline namespace v0 {

/// ln of the sum of exp(logit) of one query [head_dim] over the first `slots` slots of a lane, as far as their pages
/// are still held.
/// @param scale  of the logits
/// @cost  reads the keys of all these slots
template <class Lane>
float log_sum_of_held(const Lane& lane, index slots, const float* query, float scale) {
  attention_state all;  // of weights alone: values of no dimensions
  float logits[page_tokens];
  for (index first = 0; first < slots; first += page_tokens) {
    if (lane.pages[first / page_tokens] < 0) continue;
    const index count = std::min(page_tokens, slots - first);
    float largest = -infinity;
    for (index t = 0; t < count; ++t) {
      logits[t] = scale * dot(query, lane.key(first + t), lane.head_dim);
      largest = std::max(largest, logits[t]);
    }
    all.raise(largest, 0);
    all.add(logits, lane.key(first), count, 0);
  }
  return all.finish(0);
}

}  // namespace v0
}  // namespace zoomr

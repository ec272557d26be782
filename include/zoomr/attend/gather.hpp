// SPDX-License-Identifier: Apache-2.0
// L4. Exact attention over the chosen tokens: one pass over the runs, page by page, for all query heads that
// share a KV head, so that each key and value is read once.
#pragma once

#include <zoomr/core/paged_lane.hpp>
#include <zoomr/math/attention_state.hpp>
#include <zoomr/math/dot.hpp>
#include <zoomr/segment.hpp>

#include <algorithm>  // std::min

namespace zoomr {
inline namespace v0 {

/// Adds the tokens of `runs` to one attention state for each query head of the group.
///
/// @param runs     ascending slots
/// @param lane     `key(slot)` is where a key lies, those of its page behind it, their values `value_offset` further
/// @param queries  [group, head_dim]  rotated
/// @param scale    of the logits: 1 / sqrt(head_dim)
/// @param states   [group]  their `out` has head_dim floats; not yet finished
/// @cost  reads 2 * head_dim numbers for each token; 4 flops * head_dim for each token and query head
template <class Lane>
void gather_attend(view<const run> runs, const Lane& lane, view<const float, 2> queries, float scale,
                   view<attention_state> states) {
  float logits[page_tokens];
  for (const run& r : runs) {
    for (index first = r.first; first < r.last;) {
      const index last = std::min(r.last, (first / page_tokens + 1) * page_tokens);
      const auto* keys = lane.key(first);
      const auto* values = keys + lane.value_offset;
      const index count = last - first;
      for (index head = 0; head < states.size(); ++head) {
        attention_state& state = states[head];
        const float* query = queries[head].data();
        float largest = -infinity;
        for (index t = 0; t < count; ++t) {
          logits[t] = scale * dot(query, keys + t * lane.head_dim, lane.head_dim);
          if (logits[t] > largest || logits[t] != logits[t]) largest = logits[t];  // NaN stays, so that it shows
        }
        state.raise(largest, lane.head_dim);
        state.add(logits, values, count, lane.head_dim);
      }
      first = last;
    }
  }
}

}  // namespace v0
}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// L4. Exact attention over the chosen tokens: one pass over the ranges, page by page, for all query heads that
// share a KV head, so that each key and value is read once.
//
// cache/host/attending.hpp calls it: in a prompt for one page at a time and each token of the chunk, after it for the
// ranges of one KV head. A KV lane over tiers brings the page in `key`, and keeps it until a few others are asked for:
// so one page is done with, for all heads, before the next is asked for.
#pragma once

#include <zoomr/math/attention_state.hpp>
#include <zoomr/math/dot.hpp>
#include <zoomr/paging/paged_kv_lane.hpp>
#include <zoomr/policy/segment.hpp>

#include <algorithm>  // std::min

namespace zoomr {
inline namespace v0 {

/// Adds the tokens of `ranges` to one attention state for each query head of the group.
///
/// @param ranges     ascending slots
/// @param kv_lane  `key(slot)` is where a key lies, those of its page behind it, their values `value_offset` further
/// @param queries  [group, head_dim]  rotated
/// @param scale    of the logits: that of stored keys / sqrt(head_dim)
/// @param states   [group]  their `out` has head_dim floats; not yet finished. Logits in them are natural.
/// @pre   `out` of a new state is zeros; each slot is added to a state at most once, since nothing looks for
///        repetitions
/// @throws error(storage) if a page over tiers does not come: the states then hold a part, and must be begun anew
/// @cost  reads 2 * head_dim numbers for each token; 4 flops * head_dim for each token and query head
template <class Lane>
void gather_attend(view<const token_range> ranges, const Lane& kv_lane, view<const float, 2> queries, float scale,
                   view<attention_state> states) {
  float logits[page_tokens];
  for (const token_range& r : ranges) {
    for (index_t first = r.first; first < r.last;) {
      const index_t last = std::min(r.last, (first / page_tokens + 1) * page_tokens);
      const auto* keys = kv_lane.key(first);
      const auto* values = keys + kv_lane.value_offset;
      const index_t count = last - first;
      for (index_t head = 0; head < states.size(); ++head) {
        attention_state& state = states[head];
        const float* query = queries[head].data();
        float largest = -infinity;
        for (index_t t = 0; t < count; ++t) {
          logits[t] = scale * dot(query, keys + t * kv_lane.head_dim, kv_lane.head_dim);
          if (logits[t] > largest || logits[t] != logits[t]) largest = logits[t];  // NaN stays, so that it shows
        }
        state.raise(largest, kv_lane.head_dim);
        state.add(logits, values, count, kv_lane.head_dim);
      }
      first = last;
    }
  }
}

}  // namespace v0
}  // namespace zoomr

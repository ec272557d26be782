// SPDX-License-Identifier: Apache-2.0
// L6. What full attention would have got: for audits, at the cost of reading all keys. With config.audit, the share of
// its mass that a query head has captured is exp(lse of what it attended - the number that is made here).
#pragma once

#include <zoomr/attention/run_logits.hpp>
#include <zoomr/math/attention_state.hpp>
#include <zoomr/paging/stored_rows.hpp>

#include <algorithm>  // std::max, std::min

namespace zoomr::inline v0::detail {

/// ln of the sum of exp(logit) of one query [head_dim] over some adjacent slots of a KV lane, as far as their pages are
/// still held; tokens that were evicted count as if they had never been.
/// @param scale  of the logits: key_scale / sqrt(head_dim), or as the model has it
/// @param hook   what the model does to them; a sink is no token, and not counted
/// @throws error(storage) if pages do not come
/// @cost  reads the keys of all these slots
template <class Lane>
float log_sum_of_held(const Lane& kv_lane, token_range slots, const float* query, float scale,
                      const model_logits& hook = {}) {
  attention_state weights;  // of weights alone: values of no dimensions
  float logits[page_tokens];
  for (index_t first = slots.first, last = 0; first < slots.last; first = last) {
    last = (std::min)(slots.last, (first / page_tokens + 1) * page_tokens);
    if (!kv_lane.holds(first)) continue;
    const index_t count = last - first;
    const view<float, 2> of_page(logits, {1, count});
    key_products(kv_lane, view<const float, 2>(query, {1, kv_lane.rows.key_width}), first, of_page);
    for (index_t t = 0; t < count; ++t) logits[t] *= scale;
    change_row(fastest_cpu_path(), hook, of_page[0], first);
    on_fastest_path([&] {
      float largest = -infinity;
      for (index_t t = 0; t < count; ++t) largest = (std::max)(largest, logits[t]);
      weights.raise(largest, 0);
      weights.weigh(logits, count);
    });
  }
  return weights.finish(0);
}

}  // namespace zoomr::inline v0::detail

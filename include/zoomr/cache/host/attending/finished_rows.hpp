// SPDX-License-Identifier: Apache-2.0
// L6. The end of a query's attention, when all that it attends is in one state.
#pragma once

#include <zoomr/cache/host/core.hpp>

namespace zoomr::inline v0::detail {

/// Adds the sink, normalises, and applies the scale of values.
/// @param row  of the pass
/// @param lse  [rows, heads], or empty: ln of the sum of exp(logit), that of the sink included
template <class Pool>
void finish_row(const cache_core<Pool>& core, index_t layer, index_t row, index_t head, attention_state& state,
                view<float, 2> lse) {
  const index_t dims = core.sizes.model.value_width();
  const view<const float, 2>& sinks = core.limits.logits.sinks;
  if (sinks.data() != nullptr) state.add_sink(sinks(layer, head), dims);
  const float log_sum = state.finish(dims);
  const float scale = core.limits.value_scale.at(layer, head / core.sizes.model.group());
  for (index_t d = 0; d < dims; ++d) state.out[d] *= scale;
  if (lse.data() != nullptr) lse(row, head) = log_sum;
}

/// Finishes all rows of a pass, once those of all ranks have come together.
/// @throws error(ranks)
template <class Pool>
[[gnu::noinline]] void finish_rows_of_ranks(cache_core<Pool>& core, index_t layer, bool second_pass, view<float, 3> out,
                                            view<float, 2> lse) {
  number_hash about;
  for (const index_t number : {layer, second_pass ? 1 : 0}) about.add(std::int64_t{number});
  for (const planned_item& item : core.step.items) {
    for (const index_t number : {item.seq, item.first, item.tokens}) about.add(std::int64_t{number});
  }
  core.rank_states.merge(about.value(), out, [&](attention_state& state, index_t row, index_t head) {
    finish_row(core, layer, row, head, state, lse);
  });
}

}  // namespace zoomr::inline v0::detail

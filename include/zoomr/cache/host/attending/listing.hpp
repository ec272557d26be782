// SPDX-License-Identifier: Apache-2.0
// L6. What the queries of an item read in one layer, for engines that attend with a kernel of their own: the choices
// are made and resolved as for `attend`, in the same order, and nothing of keys or values is read.
#pragma once

#include <zoomr/cache/host/choosing/due_choices.hpp>
#include <zoomr/core/function_ref.hpp>

namespace zoomr::inline v0::detail {

/// Calls visit(slots_read) for each token of the pass, and each set of its query heads that read the same slots: of
/// those that are dealt out to ranks this rank's.
/// @param number   of the item
/// @param queries  [packed tokens, heads, head_dim]
template <class Pool>
void list_slots(cache_core<Pool>& core, planned_item& item, index_t number, index_t layer, bool second_pass,
                view<const float, 3> queries, function_ref<void(const slots_read&)> visit) {
  const shape& model = core.sizes.model;
  for (index_t t = second_pass ? item.tokens - 1 : 0; t < item.tokens; ++t) {
    const index_t packed = item.packed + (second_pass ? 0 : t);
    const layer_token<Pool> token{core, item, item.first + t, layer, second_pass};
    if (item.prompt) {  // everything that the layer sees, whatever the policy
      const token_range seen = token.seen_slots(0);
      const view<const token_range> ranges = own_ranges(core, {&seen, {1}}, 0);
      for (index_t kv_head = 0; kv_head < model.kv_heads; ++kv_head) {
        const index_t head = kv_head * model.group();
        visit(slots_read{number, packed, kv_head, {head, head + model.group()}, ranges});
      }
      continue;
    }
    const view<head_counts> counts = view<head_counts>(core.counts).slice(0, model.heads);
    token_ranges<Pool> reads = choose_due(token, queries[packed], executor{}, counts);
    reads.resolve_once();
    for (index_t kv_head = 0; kv_head < model.kv_heads; ++kv_head) {
      choose_due(token, kv_head, queries[packed], 0, counts);
      kv_head_ranges<Pool> found(reads, kv_head, 0);
      const index_t first = kv_head * model.group();
      for (index_t head = first; head < first + model.group(); head += reads.reader_heads()) {
        const view<const token_range> ranges = found.next(head, counts[head]);
        visit(slots_read{number, packed, kv_head, {head, head + reads.reader_heads()}, ranges});
      }
      counts[first].kv_lane_tokens = found.different();
    }
    add_counts(token, counts);
  }
}

}  // namespace zoomr::inline v0::detail

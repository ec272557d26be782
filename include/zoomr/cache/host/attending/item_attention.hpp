// SPDX-License-Identifier: Apache-2.0
// L6. What both ways to attend in one layer of an item have in common: its rows in the pass, the states in which its
// queries add up, and the reading of keys and values. layer_attention.hpp reads what the policy gives,
// listed_attention.hpp what an engine lists.
#pragma once

#include <zoomr/attention/gather.hpp>
#include <zoomr/cache/host/attending/audit.hpp>
#include <zoomr/cache/host/attending/finished_rows.hpp>
#include <zoomr/cache/host/choosing/token_ranges.hpp>

#include <algorithm>  // std::max, std::min
#include <cmath>      // std::exp

namespace zoomr::inline v0::detail {

/// Queries and outputs are those of the whole pass; the item reads and writes the rows from `item.packed` on.
/// @param queries   [packed tokens, heads, head_dim]  rotated and unscaled
/// @param out, lse  [packed tokens, heads, value_width]; [packed tokens, heads], or empty: ln of the sum of exp(logit)
template <class Pool>
class item_attention {
 public:
  item_attention(cache_core<Pool>& core, planned_item& item, index_t layer, bool second_pass,
                 view<const float, 3> queries, view<float, 3> out, view<float, 2> lse)
      : core_(core), item_(item), layer_(layer), second_(second_pass), queries_(queries), out_(out), lse_(lse) {}

 protected:
  static constexpr index_t all_stretches = -1;

  // Empty states, which add up in the caller's memory.
  void begin(token_range tokens, token_range heads) {
    for (index_t t = tokens.first; t < tokens.last; ++t) {
      for (index_t head = heads.first; head < heads.last; ++head) {
        core_.heads.begin(t, head, out_[packed(t)][head]);
      }
    }
  }
  // What a query has attended here is complete. Where slots are dealt out it waits for what other ranks have.
  void finish(attention_state& state, index_t row, index_t head) const {
    if (core_.rank_states.used()) return core_.rank_states.keep(row, head, state);
    finish_row(core_, layer_, row, head, state, lse_);
  }

  // The same of a token after the prompt, whose captured share counts where that is audited.
  void finish(const layer_token<Pool>& token, index_t kv_head, index_t head, head_counts& counted) {
    const index_t t = token.position - item_.first;
    attention_state& state = core_.heads.join(t, head);
    if (core_.limits.audit) {
      const sequence_state& sequence = core_.state_of(item_);
      const float of_all = log_sum_of_held(core_.kv_lane(sequence, layer_, kv_head), token.seen_slots(kv_head),
                                           queries_[packed(t)][head].data(),
                                           core_.limits.logit_scale(layer_, kv_head, core_.sizes.model.head_dim),
                                           core_.logits_of(sequence, layer_, {head, head + 1}, token.position));
      counted.captured = std::exp(static_cast<double>(state.log_sum() - of_all));
    }
    finish(state, packed(t), head);
  }

  layer_token<Pool> token_at(index_t t) { return {core_, item_, item_.first + t, layer_, second_}; }
  // The row of a token of the item in queries and outputs.
  index_t packed(index_t t) const { return item_.packed + (second_ ? 0 : t); }
  // Of a token after the prompt.  [heads]
  view<head_counts> counts(index_t t) {
    const index_t heads = core_.sizes.model.heads;
    return view<head_counts>(core_.counts).slice(t * heads, (t + 1) * heads);
  }

  // Some query heads of some tokens attend the slots of `ranges` that are within `bounds`, stretch after stretch.
  // @param heads    of one KV head, or all of several
  // @param stretch  the one that they attend by itself, whose states are apart; or all
  void gather(const sequence_state& state, token_range tokens, token_range heads, view<const token_range> ranges,
              token_range bounds, index_t stretch = all_stretches) {
    if (core_.limits.logits.plain()) {
      return gather(state, tokens, heads, ranges, bounds, stretch, [](token_range) { return plain_logits{}; });
    }
    gather(state, tokens, heads, ranges, bounds, stretch, [&](token_range query_heads) {
      return core_.logits_of(state, layer_, query_heads, item_.first + tokens.first);
    });
  }
  template <class HookOf>
  void gather(const sequence_state& state, token_range tokens, token_range heads, view<const token_range> ranges,
              token_range bounds, index_t stretch, HookOf hook_of) {
    const index_t group = core_.sizes.model.group();
    const stretch_ends ends = stretch == all_stretches ? stretch_ends{&core_.heads} : stretch_ends{};
    lanes_together<typename Pool::kv_lane_type, decltype(hook_of(heads)), stretch_ends> lanes(ranges, bounds, ends);
    for (index_t kv_head = heads.first / group; kv_head * group < heads.last; ++kv_head) {
      const token_range query_heads{(std::max)(heads.first, kv_head * group),
                                    (std::min)(heads.last, (kv_head + 1) * group)};
      lanes.add(core_.kv_lane(state, layer_, kv_head),
                core_.limits.logit_scale(layer_, kv_head, core_.sizes.model.head_dim), hook_of(query_heads),
                tokens.size() * query_heads.size(), [&](index_t i) -> run_query {
                  const index_t t = i / query_heads.size(), head = query_heads.first + i % query_heads.size();
                  attention_state& sum = stretch == all_stretches ? core_.heads.at(tokens.first + t, head)
                                                                  : core_.cut.at(stretch, t, head);
                  return {queries_[packed(tokens.first + t)][head].data(), &sum};
                });
    }
    lanes.attend();
  }

  cache_core<Pool>& core_;
  planned_item& item_;
  index_t layer_;
  bool second_;
  view<const float, 3> queries_;
  view<float, 3> out_;
  view<float, 2> lse_;
};

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L6. Which tokens does each head read? Choices that are due in a layer are made on the way.
//
// Three rows of levels can be read: the one just made for this token (scope of a layer or less, in `pending` if it will
// stay active), the pending one in a second pass, and otherwise the active one. Nothing is read from a row where a
// query attends everything: in the prompt, in the first dense layers, in a short context, or if the refresh rule says
// so.
#pragma once

#include <zoomr/attention/resolve.hpp>
#include <zoomr/cache/host/asking_token.hpp>

#include <algorithm>  // std::copy, std::max, std::sort
#include <cmath>      // std::exp
#include <utility>    // std::move

namespace zoomr {
inline namespace v0 {
namespace detail {

/// One token in one layer: which ranges does each of its heads read?
///
/// `attending` calls `see`, then for its KV heads in ascending order `ranges_of` for their query heads,
/// `heads_together` at a time, and `count` behind each KV head. It works in `core.ranges` and `core.joined`, so that
/// there is one in use at a time.
template <class Pool>
class choosing {
 public:
  choosing(cache_core<Pool>& core, planned_item& item, index_t position, index_t layer, bool second_pass)
      : core_(core),
        item_(item),
        token_(core, item, position),
        position_(position),
        layer_(layer),
        second_(second_pass) {
    const planned_token& planned = token_.planned();
    const bool short_context = position < core.limits.min_sparse_context;
    dense_ = item.prompt || short_context || layer < core.policy.zone.dense_layers ||
             planned.action == refresh_action::everything;
    per_ = core.policy.aggregate.per;
  }

  sequence_state& state() const { return token_.state(); }
  index_t layer() const { return layer_; }

  /// Query heads of one KV head that read the same ranges: the group, or 1 where each query head chooses alone.
  index_t heads_together() const {
    return core_.policy.selects && !dense_ && per_ == scope::head ? 1 : core_.sizes.model.group();
  }

  /// Sees the token's queries [heads, head_dim] before any of its ranges is asked for: they are remembered for query
  /// sums and drift, and for the next eviction. The view must stay valid for the calls that follow.
  void see(view<const float, 2> queries) {
    queries_ = queries;
    token_.remember(layer_, queries);
    if (!item_.prompt && core_.sizes.noted > 0) copy_queries(queries, core_.noting.at(token_.draft(), 0, layer_));
  }

  /// The ranges, in slots, that query head `head` and those together with it read; valid until the next call. Makes the
  /// choice of their row first if it is due and `head` is the row's first.
  /// @return  ascending and disjoint; the token's own slot is the last
  /// @cost    O(segments) to resolve, once for all heads where they read the same slots
  view<const token_range> ranges_of(index_t kv_head, index_t head) {
    choose_row(head);
    if (list_.tokens() == 0 || !same_for_all()) list_ = resolved(kv_head, head);
    count_.attended += std::int64_t{list_.tokens()} * heads_together();
    add_to_union(list_);
    record(kv_head, head);
    return list_.ranges();
  }

  /// Starts bringing what will be read, if the active selection says it: for tiered placements. Called on an object of
  /// its own, before the queries are there.
  void prefetch() {
    const bool open = core_.policy.selects && !second_ && per_ != scope::sequence &&
                      (!core_.policy.persists() || (item_.chooses && position_ == item_.last()));
    if (open && !dense_) return;  // it is chosen when the queries are there
    const index_t group = core_.sizes.model.group();
    const index_t together = same_for_all() ? core_.sizes.model.heads : heads_together();
    for (index_t head = 0; head < core_.sizes.model.heads; head += together) {
      const token_range heads{head / group, (head + together - 1) / group + 1};
      for (const token_range& r : resolved(heads.first, head).ranges())
        core_.pool.prefetch(layer_, heads, view<const index_t>(state().pages), r);
    }
  }

  /// Slots that full attention would read.
  index_t slots() const { return state().slot_end(position_ + 1); }

  /// Counts what one query head has captured.
  /// @param log_share  natural logarithm of its share of full attention's mass
  void audit(float log_share) {
    if (item_.prompt) return;
    state().stats.captured_sum += std::exp(static_cast<double>(log_share));
    ++state().stats.captured_count;
  }

  /// After all heads of one KV head: counts what was read. Slots that several of them have read count once for the
  /// device's bytes, and for each head in `statistics::attended`.
  void count() {
    if (!item_.prompt) {
      state().stats.attended += count_.attended;
      token_.planned().kv_lane_tokens += union_tokens();
    }
    count_ = {};
  }

 private:
  struct counts {
    std::int64_t attended = 0;
    std::size_t joined = 0;
  };

  // All heads read the same slots.
  bool same_for_all() const { return dense_ || core_.sizes.kv_heads_share_slots(core_.policy); }
  // Makes the choice of the row that `head` reads, if one is due and has not been made. One that stays active is
  // pending until commit: a row that is due but has not drifted takes over what was active, so that the pending one is
  // whole. With one row for all layers nothing is chosen here: the votes are complete only after the last layer.
  void choose_row(index_t head) {
    if (!core_.policy.selects || item_.prompt || second_ || layer_ < core_.policy.zone.dense_layers) return;
    const choice_row of = row_for(core_.sizes.model, per_, layer_, head);
    if (per_ == scope::sequence || head != of.first_head) return;
    const refresh_action action = token_.planned().action;
    if (!core_.policy.persists()) {
      if (action == refresh_action::choose && !dense_) token_.choose(of, queries_, state().active_selection);
      return;
    }
    if (!item_.chooses || position_ != item_.last()) return;
    selection& pending = core_.pending[static_cast<std::size_t>(item_.seq)];
    if (action == refresh_action::choose || token_.drifted(of, queries_)) {
      token_.choose(of, queries_, pending);
      item_.chosen = true;
    } else {
      pending.assign(of.row, state().active_selection.row(of.row));
    }
  }

  // The item's last token reads what it has just chosen; all others, and all with a scope of the sequence, what was
  // committed before them, but in a second pass.
  const selection_row& row_of(index_t head) const {
    const index_t row = row_for(core_.sizes.model, per_, layer_, head).row;
    const bool same_pass =
        per_ != scope::sequence && core_.policy.persists() && item_.chooses && position_ == item_.last();
    return same_pass || second_ ? core_.pending[static_cast<std::size_t>(item_.seq)].row(row)
                                : state().active_selection.row(row);
  }

  // In `core.ranges`. Without a selector there is no row: each segment is at the level of its summary.
  range_list resolved(index_t kv_head, index_t head) {
    range_list list{view<token_range>(core_.ranges)};
    if (dense_) {
      list.add({0, slots()});
      return list;
    }
    const zone_bounds zone = core_.zone_at(state(), position_, item_.open_begin);
    const slot_map slots = state().slots_of(layer_ * core_.sizes.model.kv_heads + kv_head);
    if (core_.policy.selects) {
      resolve(state().segments, row_of(head), zone, core_.policy.zone.own_summary, slots, list);
    } else {
      resolve(state().segments, selection_row{}, zone, true, slots, list);
    }
    return list;
  }

  void add_to_union(const range_list& list) {
    std::copy(list.ranges().begin(), list.ranges().end(),
              core_.joined.begin() + static_cast<std::ptrdiff_t>(count_.joined));
    count_.joined += static_cast<std::size_t>(list.ranges().size());
  }

  // Different tokens that the KV head's query heads have read. Lists of single heads overlap and are sorted together; a
  // list of the whole group is sorted already.
  std::int64_t union_tokens() {
    const auto first = core_.joined.begin();
    const auto last = first + static_cast<std::ptrdiff_t>(count_.joined);
    if (heads_together() == 1) std::sort(first, last, [](token_range a, token_range b) { return a.first < b.first; });
    std::int64_t tokens = 0;
    index_t reached = 0;
    for (auto r = first; r != last; ++r) {
      tokens += std::max(0, r->last - std::max(r->first, reached));
      reached = std::max(reached, r->last);
    }
    return tokens;
  }

  // For the caller's trace, by positions. It allocates.
  void record(index_t kv_head, index_t head) {
    if (core_.trace == nullptr || item_.prompt) return;
    const slot_map slots = state().slots_of(layer_ * core_.sizes.model.kv_heads + kv_head);
    for (index_t h = head; h < head + heads_together(); ++h) {
      attended_record made{item_.seq, position_, layer_, h, second_, {}};
      for (const token_range& r : list_.ranges()) {
        for (index_t slot = r.first; slot < r.last; ++slot) made.positions.push_back(slots.position_of(slot));
      }
      core_.trace->push_back(std::move(made));
    }
  }

  cache_core<Pool>& core_;
  planned_item& item_;
  asking_token<Pool> token_;
  index_t position_;
  index_t layer_;
  bool second_;
  bool dense_ = false;
  scope per_ = scope::sequence;
  view<const float, 2> queries_;
  range_list list_;
  counts count_;
};

}  // namespace detail
}  // namespace v0
}  // namespace zoomr

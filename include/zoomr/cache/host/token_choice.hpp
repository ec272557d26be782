// SPDX-License-Identifier: Apache-2.0
// L6. Which tokens does each head read? Choices that are due in a layer are made on the way.
//
// Three rows of levels can be read: the one just made for this token (scope of a layer or less, in `pending` if it will
// stay active), the pending one in a second pass, and otherwise the active one. Nothing is read from a row where a
// query attends everything: in the prompt, in the first dense layers, in a short context, or if the refresh rule says
// so.
#pragma once

#include <zoomr/attention/resolve.hpp>
#include <zoomr/cache/host/query_token.hpp>

#include <algorithm>  // std::copy, std::fill, std::max, std::sort
#include <utility>    // std::move

namespace zoomr::inline v0::detail {

/// One token after the prompt in one layer: which ranges does each of its heads read?
///
/// `layer_attention` calls `see`; then a `kv_head_ranges` answers for each KV head, on any thread.
template <class Pool>
class token_choice {
 public:
  token_choice(cache_core<Pool>& core, planned_item& item, index_t position, index_t layer, bool second_pass)
      : core_(core),
        item_(item),
        token_(core, item, position),
        position_(position),
        layer_(layer),
        second_(second_pass) {
    dense_ = position < core.limits.min_sparse_context || layer < core.policy.zone.dense_layers ||
             token_.planned().action == refresh_action::everything;
    per_ = core.policy.aggregate.per;
  }

  sequence_state& state() const { return token_.state(); }
  index_t layer() const { return layer_; }
  cache_core<Pool>& core() const { return core_; }

  /// Attends everything.
  bool dense() const { return dense_; }
  /// Makes a choice in this layer, or may make one.
  bool may_choose() const {
    if (!core_.policy.selects || second_) return false;
    return !core_.policy.persists() || (item_.chooses && position_ == item_.last());
  }
  /// Query heads of one KV head that read the same ranges: the group, or 1 where each query head chooses alone.
  index_t heads_together() const {
    return core_.policy.selects && !dense_ && per_ == scope::head ? 1 : core_.sizes.model.group();
  }

  /// Sees the token's queries [heads, head_dim] before any of its ranges is asked for: they are remembered for query
  /// sums and for the next eviction. Makes the row of the whole layer, if it has one that is due, with the
  /// help of `workers`. The view must stay valid for the calls that follow.
  /// @param counts  [heads]  of the token's query heads; they begin again
  void see(view<const float, 2> queries, const executor& workers, view<head_counts> counts) {
    std::fill(counts.begin(), counts.end(), head_counts{});
    queries_ = queries;
    token_.remember(layer_, queries);
    if (core_.sizes.notes_queries()) keep_queries(core_, layer_, queries, core_.eviction_queries, token_.draft());
    if (per_ == scope::layer) choose_row(0, core_.choosers.front(), workers, counts[0]);
  }
  /// Finds the ranges of all heads once, where they read the same.
  void resolve_for_all() {
    if (same_for_all()) for_all_ = resolved(0, 0, view<token_range>(core_.of_thread.front().ranges));
  }
  /// All heads read the same slots.
  bool same_for_all() const { return dense_ || core_.sizes.kv_heads_share_slots(core_.policy); }

  /// Makes the choice of the row that `head` reads if one is due, and `head` is the row's first. One that stays active
  /// is pending until commit. With one row for all layers nothing is chosen here: the votes are complete only after the
  /// last layer.
  void choose_row(index_t head, chooser& chooser, const executor& workers, head_counts& counts, index_t thread = 0) {
    if (!core_.policy.selects || second_ || layer_ < core_.policy.zone.dense_layers) return;
    const choice_row row = row_for(core_.sizes.model, per_, layer_, head);
    if (per_ == scope::sequence || head != row.first_head) return;
    if (!core_.policy.persists()) {
      counts.chosen = token_.planned().action == refresh_action::choose && !dense_;
      if (counts.chosen) {
        counts.choice = token_.choose(row, queries_, state().active_selection, chooser, workers, thread);
      }
      return;
    }
    if (!item_.chooses || position_ != item_.last()) return;
    selection& pending = core_.pending[static_cast<std::size_t>(item_.seq)];
    counts.chosen = true;
    counts.choice = token_.choose(row, queries_, pending, chooser, workers, thread);
  }

  /// As `resolved`; what was found for all heads is not found again.
  range_list ranges_of(index_t kv_head, index_t head, view<token_range> memory) const {
    return for_all_.tokens() > 0 ? for_all_ : resolved(kv_head, head, memory);
  }

  /// The slots that query head `head` reads. Without a selector there is no row: each segment is at the level of its
  /// summary.
  /// @param memory  of a thread
  range_list resolved(index_t kv_head, index_t head, view<token_range> memory) const {
    range_list list{memory};
    if (dense_) {
      list.add(seen_slots(kv_head));
      return list;
    }
    const zone_bounds zone = core_.zone_of(state(), item_, position_);
    const slot_map slots = state().slots_of(layer_ * core_.sizes.model.kv_heads + kv_head);
    if (core_.policy.selects) {
      resolve(state().segments, row_of(head), zone, core_.policy.zone.own_summary, slots, list);
    } else {
      resolve(state().segments, selection_row{}, zone, true, slots, list);
    }
    return list;
  }

  /// Slots before this one are read alike by this token and by those up to position `last` of its draft, as long as
  /// these attend everything, or do not, as it does, and none makes a choice: then only the zones move. It is the first
  /// of a page, so that what is read in two parts has the same runs. Nothing is, where a window moves on between them.
  index_t settled(index_t kv_head, index_t last) const {
    const zone_bounds here = core_.zone_of(state(), item_, position_);
    const zone_bounds there = core_.zone_of(state(), item_, last);
    if (here.begin != there.begin) return 0;
    const index_t back = here.back;
    const bool stays = dense_ || there.back == back;
    const slot_map slots_of_lane = state().slots_of(layer_ * core_.sizes.model.kv_heads + kv_head);
    return (stays ? slots() : slots_of_lane.slot_of(back)) / page_tokens * page_tokens;
  }

  /// Starts bringing what will be read, if the active selection says it: for tiered placements. Called on an object of
  /// its own, before the queries are there.
  /// @param keep  what is in memory of it is touched first, so that others make room
  void prefetch(bool keep = false) {
    const bool open = core_.policy.selects && !second_ && per_ != scope::sequence &&
                      (!core_.policy.persists() || (item_.chooses && position_ == item_.last()));
    if (open && !dense_) return;  // it is chosen when the queries are there
    const index_t group = core_.sizes.model.group();
    const index_t together = same_for_all() ? core_.sizes.model.heads : heads_together();
    for (index_t head = 0; head < core_.sizes.model.heads; head += together) {
      const token_range heads{head / group, (head + together - 1) / group + 1};
      const range_list list = resolved(heads.first, head, view<token_range>(core_.of_thread.front().ranges));
      const view<const index_t> pages(state().pages);
      for (const token_range& r : list.ranges()) {
        if (keep) core_.pool.touch(layer_, heads, pages, r);
      }
      for (const token_range& r : list.ranges()) core_.pool.prefetch(layer_, heads, pages, r);
    }
  }

  /// Slots that full attention would read, from the first one of the sequence on.
  index_t slots() const { return state().slot_end(position_ + 1); }
  /// Those that it sees: after the begin of a layer's sliding window.
  token_range seen_slots(index_t kv_head) const {
    const index_t first = core_.window_of(state()).first(position_);
    return {state().slots_of(layer_ * core_.sizes.model.kv_heads + kv_head).slot_of(first), slots()};
  }

  /// Adds what the heads have counted to the statistics, in their order. Slots that several heads of a KV head have
  /// read count once for the device's bytes, and for each head in `statistics::attended`.
  /// @param counts  [heads]
  void add_counts(view<const head_counts> counts) {
    for (const head_counts& head : counts) {
      state().stats.attended += head.attended;
      token_.planned().kv_lane_tokens += head.kv_lane_tokens;
      if (head.chosen) head.choice.add_to(state().stats);
      if (head.chosen && core_.policy.persists()) item_.chosen = true;
      if (core_.limits.audit) {
        state().stats.captured_sum += head.captured;
        ++state().stats.captured_count;
      }
    }
  }

  /// For the caller's trace, by positions. It allocates.
  void record(index_t kv_head, index_t head, const range_list& list) {
    const slot_map slots = state().slots_of(layer_ * core_.sizes.model.kv_heads + kv_head);
    for (index_t h = head; h < head + heads_together(); ++h) {
      attended_record entry{item_.seq, position_, layer_, h, second_, {}};
      for (const token_range& r : list.ranges()) {
        for (index_t slot = r.first; slot < r.last; ++slot) entry.positions.push_back(slots.position_of(slot));
      }
      core_.trace->push_back(std::move(entry));
    }
  }

 private:
  // The item's last token reads what it has just chosen; with one row for all layers it has done so in a second pass
  // alone. All others read what was committed before them. A second pass that another group of layers asks for reads
  // what the first has read: where each token chooses for itself, that is the choice made last.
  const selection_row& row_of(index_t head) const {
    const index_t row = row_for(core_.sizes.model, per_, layer_, head).row;
    const bool chooses = core_.policy.persists() && item_.chooses && position_ == item_.last();
    const bool is_made = per_ == scope::sequence ? second_ && item_.chosen : chooses;
    return is_made ? core_.pending[static_cast<std::size_t>(item_.seq)].row(row) : state().active_selection.row(row);
  }

  cache_core<Pool>& core_;
  planned_item& item_;
  query_token<Pool> token_;
  index_t position_;
  index_t layer_;
  bool second_;
  bool dense_ = false;
  scope per_ = scope::sequence;
  view<const float, 2> queries_;
  range_list for_all_;
};

/// The ranges of the query heads of one KV head, found by one thread: `ranges` for its query heads in ascending order,
/// `heads_together` at a time, then `different`.
template <class Pool>
class kv_head_ranges {
 public:
  /// @param thread  whose working memory
  kv_head_ranges(token_choice<Pool>& token, index_t kv_head, index_t thread)
      : token_(token), kv_head_(kv_head), thread_(static_cast<std::size_t>(thread)) {}

  /// The ranges, in slots, that query head `head` and those together with it read; valid until the next call. Makes the
  /// choice of their row first if it is due and `head` is the row's first.
  /// @return  ascending and disjoint; the token's own slot is the last
  /// @cost    O(segments) to resolve, once for all heads where they read the same slots
  view<const token_range> ranges(index_t head, head_counts& counts) {
    cache_core<Pool>& core = token_.core();
    const scope per = core.policy.aggregate.per;
    if (per >= scope::kv_head) {
      token_.choose_row(head, core.choosers[thread_ % core.choosers.size()], {}, counts, static_cast<index_t>(thread_));
    }
    const range_list list = token_.ranges_of(kv_head_, head, view<token_range>(core.of_thread[thread_].ranges));
    counts.attended += std::int64_t{list.tokens()} * token_.heads_together();
    std::copy(list.ranges().begin(), list.ranges().end(),
              core.of_thread[thread_].joined.begin() + static_cast<std::ptrdiff_t>(joined_));
    joined_ += static_cast<std::size_t>(list.ranges().size());
    if (core.trace != nullptr) token_.record(kv_head_, head, list);
    return list.ranges();
  }

  /// Different slots that the KV head's query heads have read. Lists of single heads overlap and are sorted together; a
  /// list of the whole group is sorted already.
  std::int64_t different() {
    const auto first = token_.core().of_thread[thread_].joined.begin();
    const auto last = first + static_cast<std::ptrdiff_t>(joined_);
    if (token_.heads_together() == 1) {
      std::sort(first, last, [](token_range a, token_range b) { return a.first < b.first; });
    }
    std::int64_t tokens = 0;
    index_t reached = 0;
    for (auto r = first; r != last; ++r) {
      tokens += (std::max)(0, r->last - (std::max)(r->first, reached));
      reached = (std::max)(reached, r->last);
    }
    return tokens;
  }

 private:
  token_choice<Pool>& token_;
  index_t kv_head_;
  std::size_t thread_;
  std::size_t joined_ = 0;
};

/// The item's choice is made when it is committed: what the next token reads is known then, and not before.
template <class Pool>
bool chooses_at_commit(const cache_core<Pool>& core, const planned_item& item) {
  return item.chooses && chooses_for_next_tokens(core.policy);
}

/// What an item will read in a layer comes while the caller makes its queries; after the last layer, what the next
/// token will read in the first. Nothing, where no page can be missing.
///
/// It guesses from the zones and the selection of the item's first token. A wrong guess costs transfers, never bits.
/// @param layer  the one after that which was attended; after the last comes the first
template <class Pool>
void prefetch_layer(cache_core<Pool>& core, planned_item& item, index_t layer, bool second_pass) {
  if (!core.policy.placement.prefetch || item.prompt || item.failed) return;
  if (layer == core.sizes.model.layers && chooses_at_commit(core, item)) return;
  token_choice<Pool> next{core, item, item.first, layer % core.sizes.model.layers, second_pass};
  core.may_fail(item, [&] { next.prefetch(); });
}

/// The same for the first layer once the item is committed with its choice. What fails here fails again when it is
/// read.
template <class Pool>
void prefetch_chosen(cache_core<Pool>& core, planned_item& item) {
  if (!core.policy.placement.prefetch || !chooses_at_commit(core, item)) return;
  item.open_begin = core.policy.segment.open_begin(core.state_of(item).segmenting.data());
  ZOOMR_TRY { token_choice<Pool>(core, item, item.last(), 0, false).prefetch(true); }
  ZOOMR_CATCH(const error& why) {}
}

}  // namespace zoomr::inline v0::detail

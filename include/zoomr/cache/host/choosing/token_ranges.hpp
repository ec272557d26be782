// SPDX-License-Identifier: Apache-2.0
// L6. A token after the prompt in one layer: whether it chooses there, and which tokens each of its heads reads.
// Nothing is chosen here (due_choices.hpp).
//
// Three rows of levels can be read: the one just made for this token (scope of a layer or less, in `pending` if it will
// stay active), the pending one in a second pass, and the active one in all other cases. No row is read where a query
// attends everything: in the prompt, in the first dense layers, in a short context, or where the refresh rule returns
// `everything`. A row may be one of everything, too.
#pragma once

#include <zoomr/attention/resolve.hpp>
#include <zoomr/cache/host/core.hpp>
#include <zoomr/core/token_range.hpp>

#include <algorithm>  // std::copy, std::max, std::sort
#include <utility>    // std::move

namespace zoomr::inline v0::detail {

/// A row that is read.
struct choice_place {
  const selection& rows;
  index_t row;
};

/// One token of an item, in one layer and pass. It holds references only, and is made for each token and layer.
template <class Pool>
struct layer_token {
  cache_core<Pool>& core;
  planned_item& item;
  index_t position;
  index_t layer;
  bool second_pass;

  sequence_state& state() const { return core.state_of(item); }
  planned_token& planned() const { return core.step.token(item, position); }

  /// Attends everything.
  bool dense() const {
    return position < core.limits.min_sparse_context || layer < core.policy.zone.dense_layers ||
           planned().action == refresh_action::everything;
  }
  /// Makes a choice in this pass, or may make one.
  bool may_choose() const {
    if (!core.policy.selects || second_pass) return false;
    return !core.policy.persists() || (item.chooses && position == item.last());
  }
  /// Makes the choices of this layer's rows. With one row for all layers there are none: the votes are complete only
  /// after the last layer.
  bool chooses() const {
    if (!may_choose() || core.policy.aggregate.per == scope::sequence) return false;
    if (layer < core.policy.zone.dense_layers || !core.anchors.chooses(layer)) return false;
    return core.policy.persists() || (planned().action == refresh_action::choose && !dense());
  }

  /// Reads the choice of another layer, which has been made in this pass.
  bool follows() const { return !core.anchors.chooses(layer) && core.step.layers.seen(core.anchors.anchor(layer)); }

  /// Slots that full attention would read, from the first one of the sequence on.
  index_t slots() const { return state().slot_end(position + 1); }
  slot_map slots_of(index_t kv_head) const { return state().slots_of(core.lane_of(layer, kv_head)); }
  /// Those that it sees: after the begin of a layer's sliding window.
  token_range seen_slots(index_t kv_head) const {
    return {slots_of(kv_head).slot_of(core.window_of(state()).first(position)), slots()};
  }
  zone_bounds zone() const { return core.zone_of(state(), item, position); }

  /// The row that a query head reads, unless it is dense. The item's last token reads the row that it has just made;
  /// with one row for all layers only in a second pass. All others read what was committed before them. A second pass
  /// for another group of layers reads what the first has read: where each token chooses for itself, that is the choice
  /// made last.
  const selection_row& row_of(index_t head) const {
    const choice_place place = choice_of(head);
    return place.rows.row(place.row);
  }
  choice_place choice_of(index_t head) const {
    const scope per = core.policy.aggregate.per;
    const anchor_table::place source = core.anchors.source(layer, head);
    const index_t row = row_for(core.sizes.model, per, source.layer, source.head).row;
    const bool for_following = core.policy.persists() && item.chooses && position == item.last();
    const bool is_made = per == scope::sequence ? second_pass && item.chosen : for_following;
    if (const selection* const kept = own_choice()) return {*kept, row};
    return {is_made ? core.pending[static_cast<std::size_t>(item.seq)] : state().active_selection, row};
  }
  /// Where each token chooses for itself: the rows of a token of a draft that are kept for later layers; nullptr: those
  /// of the item's last token are in the active selection.
  selection* own_choice() const {
    if (core.sizes.draft_choices == 0 || position == item.last()) return nullptr;
    return &core.draft_choices[item.draft + position - item.first];
  }
  /// Attends everything because a choice was unsure, and for no other reason.
  bool unsure() const {
    if (!core.policy.aggregate.gate || position < core.limits.min_sparse_context) return false;
    return planned().action != refresh_action::everything && row_of(0).everything();
  }
};

/// What one token after the prompt reads in one layer: ranges of slots, for each reader. A reader is some query heads
/// of one KV head that read the same: all of the group, or each one alone.
template <class Pool>
class token_ranges {
 public:
  explicit token_ranges(const layer_token<Pool>& token) : token_(token), dense_(token.dense()) {}

  const layer_token<Pool>& token() const { return token_; }
  /// Query heads of a reader.
  index_t reader_heads() const {
    const any_policy& policy = token_.core.policy;
    return policy.selects && !dense_ && policy.aggregate.per == scope::head ? 1 : token_.core.sizes.model.group();
  }
  /// All heads of the layer read the same slots.
  bool same_for_all() const { return dense_ || token_.core.sizes.kv_heads_share_slots(token_.core.policy); }

  /// Finds the ranges of all heads once, where they read the same, in the first thread's memory.
  void resolve_once() {
    if (same_for_all()) for_all_ = resolved(0, 0, view<token_range>(token_.core.of_thread.front().ranges));
  }

  /// The slots that the reader of query head `head` reads; ascending and disjoint, the token's own is the last. Without
  /// a selector there is no row: each segment is at the level of its summary.
  /// @param memory  of a thread; unused where `resolve_once` has found them
  /// @cost  O(segments), or none
  range_list list(index_t kv_head, index_t head, view<token_range> memory) const {
    return for_all_.tokens() > 0 ? for_all_ : resolved(kv_head, head, memory);
  }

  /// Slots before this one are read alike by this token and by those up to position `last` of its draft. That needs
  /// that all of them attend everything, or none does, and that none makes a choice: then only the zones move. The slot
  /// is the first of a page, so that runs are the same when they are read in two parts; 0 where the layer's window
  /// moves on.
  index_t settled(index_t kv_head, index_t last) const {
    const zone_bounds first_zone = token_.zone();
    const zone_bounds last_zone = token_.core.zone_of(token_.state(), token_.item, last);
    if (first_zone.begin != last_zone.begin) return 0;
    const bool stays = dense_ || last_zone.back == first_zone.back;
    const index_t end = stays ? token_.slots() : token_.slots_of(kv_head).slot_of(first_zone.back);
    return end / page_tokens * page_tokens;
  }

  /// Starts bringing what will be read, as far as it follows from the active selection: for tiered placements. Called
  /// on an object of its own, before the queries are there.
  /// @param keep  blocks that are in memory are touched first, so that others are replaced
  void prefetch(bool keep = false) const {
    cache_core<Pool>& core = token_.core;
    const bool open = token_.may_choose() && core.policy.aggregate.per != scope::sequence && !token_.follows();
    if (open && !dense_) return;  // chosen only when the queries are there
    const shape& model = core.sizes.model;
    const index_t heads_of_list = same_for_all() ? model.heads : reader_heads();
    for (index_t head = 0; head < model.heads; head += heads_of_list) {
      const token_range kv_heads{head / model.group(), (head + heads_of_list - 1) / model.group() + 1};
      const range_list list = resolved(kv_heads.first, head, view<token_range>(core.of_thread.front().ranges));
      const view<const index_t> pages(token_.state().pages);
      const index_t stored = core.donors.stored(token_.layer);
      for (const token_range& r : list.ranges()) {
        if (keep) core.pool.touch(stored, kv_heads, pages, r);
      }
      for (const token_range& r : list.ranges()) core.pool.prefetch(stored, kv_heads, pages, r);
    }
  }

  /// For the caller's trace, by positions. It allocates.
  void record(index_t kv_head, index_t head, const range_list& list) const {
    const slot_map slots = token_.slots_of(kv_head);
    for (index_t h = head; h < head + reader_heads(); ++h) {
      attended_record entry{token_.item.seq, token_.position, token_.layer, h, token_.second_pass, {}};
      for (const token_range& r : list.ranges()) {
        for (index_t slot = r.first; slot < r.last; ++slot) entry.positions.push_back(slots.position_of(slot));
      }
      token_.core.trace->push_back(std::move(entry));
    }
  }

 private:
  range_list resolved(index_t kv_head, index_t head, view<token_range> memory) const {
    range_list list{memory};
    if (dense_) {
      list.add(token_.seen_slots(kv_head));
      return list;
    }
    const any_policy& policy = token_.core.policy;
    const slot_map slots = token_.slots_of(kv_head);
    if (policy.selects) {
      const choice_place place = token_.choice_of(head);
      const selection_row& row = place.rows.row(place.row);
      if (row.everything()) {
        list.add(token_.seen_slots(kv_head));
        return list;
      }
      const bool listed = place.rows.listed(place.row) && !token_.state().summary_tokens;
      const view<const index_t> taken = listed ? place.rows.taken(place.row) : view<const index_t>{};
      resolve(token_.state().segments, row, token_.zone(), policy.zone.own_summary, slots, list,
              listed ? &taken : nullptr);
    } else {
      resolve(token_.state().segments, selection_row{}, token_.zone(), true, slots, list);
    }
    return list;
  }

  layer_token<Pool> token_;
  bool dense_;
  range_list for_all_;
};

/// Of slots that are read those that are this rank's; all, where none are dealt out.
/// @param ranges  ascending
/// @param thread  in whose memory they are, until it finds others
/// @cost  O(ranges + deals)
template <class Pool>
view<const token_range> own_ranges(cache_core<Pool>& core, view<const token_range> ranges, index_t thread) {
  if (core.limits.token_ranks.alone()) return ranges;
  range_list own(view<token_range>(core.of_thread[static_cast<std::size_t>(thread)].own_ranges));
  for (const token_range& r : ranges) core.limits.token_ranks.each_own(r, [&](token_range piece) { own.add(piece); });
  return own.ranges();
}

/// The ranges of the readers of one KV head, found by one thread: `next` for each of them in ascending order, then
/// `different`.
template <class Pool>
class kv_head_ranges {
 public:
  /// @param thread  whose working memory
  kv_head_ranges(const token_ranges<Pool>& ranges, index_t kv_head, index_t thread)
      : ranges_(ranges),
        kv_head_(kv_head),
        thread_(thread),
        memory_(ranges.token().core.of_thread[static_cast<std::size_t>(thread)]) {}

  /// The ranges of the reader that begins with query head `head`, as far as they are this rank's; valid until the next
  /// call. What all ranks read is counted, and recorded.
  /// @cost  as `token_ranges::list`
  view<const token_range> next(index_t head, head_counts& counts) {
    const range_list list = ranges_.list(kv_head_, head, view<token_range>(memory_.ranges));
    counts.attended += std::int64_t{list.tokens()} * ranges_.reader_heads();
    if (ranges_.token().core.trace != nullptr) ranges_.record(kv_head_, head, list);
    const view<const token_range> own = own_ranges(ranges_.token().core, list.ranges(), thread_);
    std::copy(own.begin(), own.end(), memory_.joined.begin() + static_cast<std::ptrdiff_t>(joined_));
    joined_ += static_cast<std::size_t>(own.size());
    return own;
  }

  /// Number of different slots that the KV head's query heads have read. Lists of single heads overlap and are sorted
  /// together; a list of the whole group is sorted already.
  std::int64_t different() {
    const auto first = memory_.joined.begin();
    const auto last = first + static_cast<std::ptrdiff_t>(joined_);
    if (ranges_.reader_heads() == 1) {
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
  const token_ranges<Pool>& ranges_;
  index_t kv_head_;
  index_t thread_;
  thread_memory<typename Pool::number>& memory_;
  std::size_t joined_ = 0;
};

/// Adds what the heads of a token have counted in a layer to the statistics, in their order. Slots that several heads
/// of a KV head have read count once for the device's bytes, and for each head in `statistics::attended`.
/// @param counts  [heads]
template <class Pool>
void add_counts(const layer_token<Pool>& token, view<const head_counts> counts) {
  statistics& stats = token.state().stats;
  if (token.layer == 0 && !token.second_pass) {
    ++stats.taken;
    stats.unsure_tokens += token.unsure() ? 1 : 0;
  }
  for (const head_counts& head : counts) {
    stats.attended += head.attended;
    token.planned().kv_lane_tokens += head.kv_lane_tokens;
    if (head.chosen) head.choice.add_to(stats);
    if (head.chosen && token.core.policy.persists()) token.item.chosen = true;
    if (token.core.limits.audit) {
      stats.captured_sum += head.captured;
      ++stats.captured_count;
    }
  }
}

/// The item's choice is made at its commit: only then it is certain what the next token reads.
template <class Pool>
bool chooses_at_commit(const cache_core<Pool>& core, const planned_item& item) {
  return item.chooses && chooses_for_next_tokens(core.policy);
}

/// Starts bringing what an item will read in a layer, while the caller makes its queries; after the last layer, what
/// the next token will read in the first. Does nothing where no page can be missing.
///
/// This is a guess, from the zones and the selection of the item's first token. A wrong one costs transfers and changes
/// no result.
/// @param layer  the one after the layer just attended; the first after the last
template <class Pool>
void prefetch_layer(cache_core<Pool>& core, planned_item& item, index_t layer, bool second_pass) {
  if (!core.policy.placement.prefetch || item.prompt || item.failed) return;
  if (layer == core.sizes.model.layers && chooses_at_commit(core, item)) return;
  const layer_token<Pool> token{core, item, item.first, layer % core.sizes.model.layers, second_pass};
  core.may_fail(item, [&] { token_ranges<Pool>(token).prefetch(); });
}

/// The same for the first layer once the item is committed with its choice. What fails here fails again when it is
/// read.
template <class Pool>
void prefetch_chosen(cache_core<Pool>& core, planned_item& item) {
  if (!core.policy.placement.prefetch || !chooses_at_commit(core, item)) return;
  item.open_begin = core.policy.segment.open_begin(core.state_of(item).segmenting.data());
  ZOOMR_TRY { token_ranges<Pool>(layer_token<Pool>{core, item, item.last(), 0, false}).prefetch(true); }
  ZOOMR_CATCH(const error& cause) {}
}

}  // namespace zoomr::inline v0::detail

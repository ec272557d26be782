// SPDX-License-Identifier: Apache-2.0
// L6. The one place where choices are made: what is due, when, and how each row of it is made.
//
// A scope of a layer or less: each layer makes its own rows, just before its heads read them. All other choices are
// made after the last layer, from the queries that were kept for them.
#pragma once

#include <zoomr/cache/host/choosing/key_scores.hpp>
#include <zoomr/cache/host/choosing/token_queries.hpp>
#include <zoomr/cache/host/choosing/token_ranges.hpp>

#include <algorithm>  // std::fill

namespace zoomr::inline v0::detail {

/// The rows that one token chooses, made one after the other by one thread.
template <class Pool>
class row_choices {
 public:
  /// @param workers  may score the KV heads of a row
  /// @param thread   number of the calling thread; others may make other rows
  row_choices(cache_core<Pool>& core, planned_item& item, index_t position, const executor& workers, index_t thread = 0)
      : core_(core),
        item_(item),
        state_(core.state_of(item)),
        position_(position),
        workers_(workers),
        thread_(thread),
        queries_(core, item, position),
        chooser_(core.choosers[static_cast<std::size_t>(thread) % core.choosers.size()]) {}

  /// Makes row `row` of `into` from the segments that are committed.
  /// @param queries  [heads, head_dim]  rotated, of the row's only layer; empty: those kept of all layers of the row
  /// @param into     the item's pending choice, or the active selection where a choice serves its own token only
  /// @return  what the statistics are to count
  /// @cost  reads the index of the row's KV lanes once for each query head
  choice_counts make(const choice_row& row, view<const float, 2> queries, selection& into) {
    chooser_.begin(state_, zone(), state_.slots_of(lane_of(row)));
    if (core_.sizes.heard > 0) {
      add_shares();
    } else {
      for (index_t layer = row.first_layer; layer < row.last_layer; ++layer) add_scores(row, layer, queries);
    }
    return chooser_.finish(position_, item_.seq, into, row.row, state_.active_selection.row(row.row));
  }

 private:
  // The KV lane whose kept tokens count. Where a row serves several any of them stands for all: no policy lets them
  // keep different tokens then.
  index_t lane_of(const choice_row& row) const {
    return core_.lane_of(row.first_layer, row.first_head / core_.sizes.model.group());
  }

  // The zones of the token. A choice that is made after the commit may take the segments that the item has closed. So
  // its open segment begins where the segmenter says; in a pass it begins where the plan of the item says.
  zone_bounds zone() const {
    if (!item_.prompt && item_.due_from < 0) return core_.zone_of(state_, item_, position_);
    return core_.zone_at(state_, position_, core_.policy.segment.open_begin(state_.segmenting.data()));
  }

  // What the heads of one layer agree on, or its voters alone, by summaries or by keys. What is not eligible needs no
  // score: votes say so before anything is added to them.
  // @param layer_queries  as `make` has them
  void add_scores(const choice_row& row, index_t layer, view<const float, 2> layer_queries) {
    const auto score = [&](index_t kv_head, const auto& heads, view<const float, 2> queries, view<float, 2> scores,
                           index_t thread) {
      const view<const votes_t> votes = chooser_.votes_so_far();
      if (!core_.policy.adds_scores_of_keys()) {
        const index_t lane = core_.anchors.index_lane(core_.lane_of(layer, kv_head));
        core_.policy.score.score(queries, state_.summaries_of(core_.sizes, lane), votes, scores);
        return;
      }
      // One of the two is 0: rows are shared out over threads, or the KV heads of one row are.
      key_scores<Pool> by_keys(core_, state_, layer, kv_head, thread_ + thread);
      by_keys.ask(heads, queries);
      by_keys.score(
          position_, chooser_.details(), [&](index_t id) { return votes[id] != not_eligible; },
          [&](index_t head, index_t id, float value) { scores(head, id) = value; });
    };
    const head_queries row_queries = queries_.of_row(row, layer, layer_queries);
    if (core_.sizes.rounded_cells > 0) {
      const index_t lane = core_.anchors.index_lane(lane_of(row));
      const rounded_lane rounded = state_.rounded.lane(lane, state_.segment_count());
      const auto* const summaries = reinterpret_cast<const float*>(state_.summaries_of(core_.sizes, lane));
      if (chooser_.choose_listed(row_queries, rounded, summaries)) return;
    }
    if (core_.policy.aggregate.weighs) {
      chooser_.add_voters(row_queries, core_.voters, workers_, score);
    } else {
      chooser_.add(row_queries, workers_, score);
    }
  }

  // Adds the shares that voters find by the last queries, this token's included.
  void add_shares() {
    chooser_.add_shares(shares_of_voters(core_, state_, queries_.scoring(), chooser_.details(), workers_, queries_),
                        core_.voters.weights(), core_.voters.gate());
  }

  cache_core<Pool>& core_;
  planned_item& item_;
  sequence_state& state_;
  index_t position_;
  executor workers_;
  index_t thread_;
  token_queries<Pool> queries_;
  chooser& chooser_;
};

/// Makes those rows of a layer whose first query head is one of `heads`.
template <class Pool>
void choose_rows(const layer_token<Pool>& token, token_range heads, view<const float, 2> queries,
                 const executor& workers, index_t thread, view<head_counts> counts) {
  cache_core<Pool>& core = token.core;
  const bool stays = core.policy.persists();
  selection& into = stays ? core.pending[static_cast<std::size_t>(token.item.seq)] : token.state().active_selection;
  row_choices<Pool> choices(core, token.item, token.position, workers, thread);
  for (index_t head = heads.first; head < heads.last; ++head) {
    const choice_row row = row_for(core.sizes.model, core.policy.aggregate.per, token.layer, head);
    if (head != row.first_head) continue;
    counts[head].chosen = true;
    counts[head].choice = choices.make(row, queries, into);
    if (selection* const kept = token.own_choice()) kept->assign(row.row, into.row(row.row));
  }
}

/// Keeps a token's queries as it comes to a layer, and makes the row of the whole layer if it is due. A choice that
/// stays active is pending until commit.
/// @param queries  [heads, head_dim]  rotated
/// @param counts   [heads]  of the token in this layer: set to what each choice counts
/// @return  what each of the heads reads, once the rows of its KV head are made too
/// @cost    no allocation; that of the row
template <class Pool>
token_ranges<Pool> choose_due(const layer_token<Pool>& token, view<const float, 2> queries, const executor& workers,
                              view<head_counts> counts) {
  std::fill(counts.begin(), counts.end(), head_counts{});
  token_queries<Pool>(token.core, token.item, token.position).keep(token.layer, queries);
  const bool for_layer = token.core.policy.aggregate.per == scope::layer;
  if (for_layer && token.chooses()) choose_rows(token, {0, 1}, queries, workers, 0, counts);
  return token_ranges<Pool>(token);
}
/// The same for the rows of one KV head or less. The thread that reads the KV head next makes them, so that no thread
/// waits between choosing and reading.
/// @param thread  number of the calling thread
template <class Pool>
void choose_due(const layer_token<Pool>& token, index_t kv_head, view<const float, 2> queries, index_t thread,
                view<head_counts> counts) {
  if (token.core.policy.aggregate.per == scope::layer || !token.chooses()) return;
  const index_t group = token.core.sizes.model.group();
  choose_rows(token, {kv_head * group, (kv_head + 1) * group}, queries, executor{}, thread, counts);
}

/// When a choice for all layers may be due that no layer makes; each from an item's last token.
enum class choice_time {
  first_pass,  ///< read in the second pass
  last_pass,   ///< read by the tokens that follow: unless the first pass has made it
};

template <class Pool>
bool is_due(const cache_core<Pool>& core, const planned_item& item, choice_time when) {
  if (item.prompt || !item.chooses || core.policy.aggregate.per != scope::sequence) return false;
  return when == choice_time::first_pass ? core.policy.refresh.second_pass : !item.chosen;
}

/// Makes all rows of an item's choice, as pending.
/// @param position  of the token that makes it
/// @cost  that of each row
template <class Pool>
void choose_rows(cache_core<Pool>& core, planned_item& item, index_t position) {
  const shape& model = core.sizes.model;
  sequence_state& state = core.state_of(item);
  selection& pending = core.pending[static_cast<std::size_t>(item.seq)];
  row_choices<Pool> choices(core, item, position, core.threads_for(state.tokens()));
  for (index_t layer = 0; layer < model.layers; ++layer) {
    for (index_t head = 0; core.anchors.chooses(layer) && head < model.heads; ++head) {
      const choice_row row = row_for(model, core.policy.aggregate.per, layer, head);
      if (layer == row.first_layer && head == row.first_head) choices.make(row, {}, pending).add_to(state.stats);
    }
  }
  item.chooses = item.chosen = true;
}

/// Rows of layers that choose nothing become those that they read, so that each row says what its heads read.
/// @cost  O(segments) for each of these rows
template <class Pool>
void pass_on_rows(const cache_core<Pool>& core, selection& rows) {
  const shape& model = core.sizes.model;
  const scope per = core.policy.aggregate.per;
  for (index_t layer = 0; core.anchors.used() && layer < model.layers; ++layer) {
    for (index_t head = 0; !core.anchors.chooses(layer) && head < model.heads; ++head) {
      const choice_row row = row_for(model, per, layer, head);
      const anchor_table::place source = core.anchors.source(layer, head);
      if (head == row.first_head) rows.assign(row.row, rows.row(row_for(model, per, source.layer, source.head).row));
    }
  }
}

/// Makes the choice that is due, if one is.
template <class Pool>
void choose_due(cache_core<Pool>& core, planned_item& item, choice_time when) {
  if (is_due(core, item, when)) choose_rows(core, item, item.last());
}

/// A choice waits for the tokens to be committed.
template <class Pool>
bool waits_for_commit(const cache_core<Pool>& core, const planned_item& item, index_t accepted) {
  return item.prompt ? item.prompt_ends && item.chooses : item.waits(accepted, core.sizes.heard > 0);
}

/// Where other ranks are gone in the middle of a commit: the tokens that follow read everything until the next choice.
template <class Pool>
[[gnu::cold, gnu::noinline]] void read_everything(cache_core<Pool>& core, planned_item& item) {
  selection& pending = core.pending[static_cast<std::size_t>(item.seq)];
  for (index_t row = 0; row < core.sizes.selection_rows; ++row)
    core.choosers.front().finish_with_everything(pending, row);
  item.chooses = item.chosen = true;
}

/// Makes the choice, of any scope, that waits for the tokens to be committed: after a prompt, or of an item that was
/// passed whole. Of a part of such an item it is made where voters choose, since of all others the queries of the
/// item's last token alone are kept.
/// @pre  the item's first `accepted` tokens are committed, with their queries
/// @return  true if one was made
template <class Pool>
bool choose_waiting(cache_core<Pool>& core, planned_item& item, index_t accepted) {
  const bool due = waits_for_commit(core, item, accepted);
  if (!due) return false;
  ZOOMR_TRY { choose_rows(core, item, item.first + accepted - 1); }
  ZOOMR_CATCH(const error& cause) {
    if (!core.exchange.used()) rethrow();
    core.exchange.keep_failure(cause.what());
    read_everything(core, item);
  }
  return true;
}

}  // namespace zoomr::inline v0::detail

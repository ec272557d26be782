// SPDX-License-Identifier: Apache-2.0
// L6. The token that makes a choice: its queries, and what is remembered of them.
//
// Of each token after the prompt there is a record [layers, heads, head_dim] if the query source sums: the sum over the
// open segment's queries,
//   sum(t) = query(t), and sum(t - 1) added unless t is the first generated token of its segment
// The records of a step are in `core.draft_queries`; commit copies those of accepted tokens into the sequence's ring.
// So a second pass, or another draft, finds the record before it unchanged.
#pragma once

#include <zoomr/cache/host/key_scores.hpp>

#include <algorithm>  // std::copy_n, std::max

namespace zoomr::inline v0::detail {

/// Copies one token's queries in one layer.
/// @param from, to  [heads, head_dim]
inline void copy_queries(view<const float, 2> from, view<float, 2> to) {
  for (index_t head = 0; head < from.extent(0); ++head) std::copy_n(from[head].data(), from.extent(1), to[head].data());
}

/// Keeps one token's queries in one layer for later choices or evictions: those of all heads, or of the voters alone.
/// @param queries  [heads, head_dim]
/// @param into     memory of `layout::asked_heads`
template <class Pool>
void keep_queries(const cache_core<Pool>& core, index_t layer, view<const float, 2> queries, query_memory& into,
                  index_t record) {
  if (core.sizes.heard == 0) return copy_queries(queries, into.at(record, 0, layer));
  const view<float, 2> kept = into.at(record, 0, 0);
  core.voters.each_in(layer, [&](index_t voter, index_t head) {
    std::copy_n(queries[head].data(), queries.extent(1), kept[voter].data());
  });
}

/// One token of a step whose queries are known, in all layers or in those so far. It holds references only, and is made
/// for each token and layer.
template <class Pool>
class query_token {
 public:
  query_token(cache_core<Pool>& core, planned_item& item, index_t position)
      : core_(core), item_(item), state_(core.state_of(item)), position_(position) {}

  sequence_state& state() const { return state_; }
  planned_token& planned() const { return core_.step.token(item_, position_); }

  /// Makes row `row` of `into`. The queries come from `core.choice_queries` or, in the layer being attended, from
  /// `queries`.
  ///
  /// What is scored are the committed segments. A prompt's choice, and one that has waited, comes after its tokens are
  /// committed, so that those which they have closed count, and the open segment is the one after them.
  /// @param queries  [heads, head_dim]  rotated, of the row's only layer; empty: those noted in all layers of the row
  /// @param into     the item's pending choice, or the active selection where a choice serves its own token only
  /// @param chooser  working memory
  /// @param workers  may score the KV heads of the row
  /// @param thread   the number of the thread that calls, where others may call for other rows
  /// @return  what the statistics are to count
  /// @cost  reads the index of the row's KV lanes once for each query head
  choice_counts choose(const choice_row& row, view<const float, 2> queries, selection& into, chooser& chooser,
                       const executor& workers, index_t thread = 0) {
    chooser.begin(state_, zone(), state_.slots_of(row.kv_lane));
    if (core_.sizes.heard > 0) {
      hear(chooser, workers);
    } else {
      score_layers(row, queries, chooser, workers, thread);
    }
    return chooser.finish(position_, item_.seq, into, row.row, state_.active_selection.row(row.row));
  }

  /// Keeps what later choices need of this token's queries in one layer; in a second pass again.
  /// @param queries  [heads, head_dim]  rotated
  /// @cost  copies the query of each head once or twice
  void remember(index_t layer, view<const float, 2> queries) {
    if (item_.prompt) return;
    if (core_.policy.query.sums) add_to_sum(layer, queries);
    if ((item_.chooses || item_.goes_on()) && position_ == item_.last()) note(layer, queries);
  }

  /// Keeps the queries for a choice that is made after the last layer, where choices stay active.
  void note(index_t layer, view<const float, 2> queries) {
    if (layout::asking_parts(core_.policy) == 0) return;
    copy_queries(queries, core_.choice_queries.at(item_.seq, 0, layer));
  }

  /// Where this token's record is in `core.draft_queries`, and its queries in `core.eviction_queries`.
  index_t draft() const { return item_.draft + position_ - item_.first; }

 private:
  // sum(t), see above.
  void add_to_sum(index_t layer, view<const float, 2> queries) {
    const view<float, 2> after = core_.draft_queries.at(draft(), 0, layer);
    const view<float, 2> before = position_ == item_.first ? state_.queries.at(position_ - 1, 0, layer)
                                                           : core_.draft_queries.at(draft() - 1, 0, layer);
    const bool begins = count() == 1;
    for (index_t head = 0; head < queries.extent(0); ++head) {
      for (index_t d = 0; d < queries.extent(1); ++d) {
        after(head, d) = (begins ? 0.0f : before(head, d)) + queries(head, d);
      }
    }
  }

  // The zones of the query that asks.
  zone_bounds zone() const {
    if (!item_.prompt && !item_.waits) return core_.zone_of(state_, item_, position_);
    return core_.zone_at(state_, position_, core_.policy.segment.open_begin(state_.segmenting.data()));
  }
  // The votes of all layers of a row.
  void score_layers(const choice_row& row, view<const float, 2> queries, chooser& chooser, const executor& workers,
                    index_t thread) {
    for (index_t layer = row.first_layer; layer < row.last_layer; ++layer) {
      const head_queries asking = who(row, layer, queries);
      if (core_.policy.aggregate.weighs) {
        score_voters(asking, chooser, workers);
      } else {
        score(asking, chooser, workers, thread);
      }
    }
  }

  // Scores the segments for the heads of one layer, by summaries or by keys.
  void score(const head_queries& asking, chooser& chooser, const executor& workers, index_t caller) {
    chooser.add(
        asking, workers,
        [&](index_t kv_head, token_range heads, view<const float, 2> queries, view<float, 2> scores, index_t thread) {
          const view<const votes_t> votes = chooser.votes_so_far();
          if (!core_.policy.adds_scores_of_keys()) {
            const index_t kv_lane = asking.layer * core_.sizes.model.kv_heads + kv_head;
            core_.policy.score.score(queries, state_.summaries_of(core_.sizes, kv_lane), votes, scores);
            return;
          }
          key_scores<Pool> by_keys(core_, state_, asking.layer, kv_head, caller + thread);
          by_keys.ask(heads, [&](index_t head) { return queries[head - heads.first]; });
          by_keys.score(
              position_, chooser.details(), [&](index_t id) { return votes[id] != not_eligible; },
              [&](index_t head, index_t id, float score) { scores(head, id) = score; });
        });
  }

  // The same for the voters of the layer alone.
  void score_voters(const head_queries& asking, chooser& chooser, const executor& workers) {
    const auto score_lane = [&](const voter_table::kv_lane& lane, view<const float, 2> queries, view<float, 2> scores,
                                index_t thread) {
      const view<const votes_t> votes = chooser.votes_so_far();
      if (!core_.policy.adds_scores_of_keys()) {
        const index_t kv_lane = lane.layer * core_.sizes.model.kv_heads + lane.kv_head;
        core_.policy.score.score(queries, state_.summaries_of(core_.sizes, kv_lane), votes, scores);
        return;
      }
      key_scores<Pool> by_keys(core_, state_, lane.layer, lane.kv_head, thread);
      by_keys.ask(view<const index_t>(lane.heads), queries);
      by_keys.score(
          position_, chooser.details(), [&](index_t id) { return votes[id] != not_eligible; },
          [&](index_t voter, index_t id, float score) { scores(voter, id) = score; });
    };
    chooser.add_voters(asking, core_.voters, workers, score_lane);
  }

  // The heads that vote hear the last queries, this token's included.
  void hear(chooser& chooser, const executor& workers) {
    const token_range heard{(std::max)({position_ + 1 - core_.sizes.heard, state_.queries_from, 0}), position_ + 1};
    const auto queries = [&](index_t position) -> view<const float, 2> {
      if (item_.prompt || position < item_.first) return state_.last_queries.at(position, 0, 0);
      return core_.eviction_queries.at(item_.draft + position - item_.first, 0, 0);
    };
    chooser.add_shares(shares_of_voters(core_, state_, heard, chooser.details(), workers, queries),
                       core_.voters.weights());
  }

  // Queries in the running sum: those of generated tokens of the segment that the token belongs to.
  index_t count() const { return position_ + 1 - (std::max)(planned().asks_from, state_.last_prompt_end()); }

  // At the end of a prompt nothing has been summed: only generated tokens count, so that the token asks alone.
  head_queries who(const choice_row& row, index_t layer, view<const float, 2> queries) {
    const view<const float, 2> own = queries.data() != nullptr ? queries : core_.choice_queries.at(item_.seq, 0, layer);
    if (item_.prompt || !core_.policy.query.sums) return {layer, row.first_head, row.last_head, own, own, 1};
    return {layer, row.first_head, row.last_head, own, core_.draft_queries.at(draft(), 0, layer), count()};
  }

  cache_core<Pool>& core_;
  planned_item& item_;
  sequence_state& state_;
  index_t position_;
};

/// Makes the choice that an item's last token is due, from the queries noted in its pass; all rows of it.
///
/// Called when all layers have been seen: at the end of a prompt, or where the choice has waited for the commit, for
/// any scope; otherwise only where one row serves all layers, by `needs_second_pass` or `commit`.
template <class Pool>
void make_choice(cache_core<Pool>& core, planned_item& item) {
  if (!core.policy.selects) return;
  const shape& model = core.sizes.model;
  query_token<Pool> token(core, item, item.last());
  selection& pending = core.pending[static_cast<std::size_t>(item.seq)];
  chooser& chooser = core.choosers.front();
  const executor& workers = core.threads_for(core.state_of(item).tokens());
  for (index_t layer = 0; layer < model.layers; ++layer) {
    for (index_t head = 0; head < model.heads; ++head) {
      const choice_row row = row_for(model, core.policy.aggregate.per, layer, head);
      if (layer != row.first_layer || head != row.first_head) continue;
      token.choose(row, {}, pending, chooser, workers).add_to(core.state_of(item).stats);
      item.chosen = true;
    }
  }
}

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L6. The token that makes a choice: its queries, and what is remembered of them.
//
// Of each token after the prompt there is a record of some parts, each [layers, heads, head_dim]: the sum over the open
// segment's queries if the query source sums, then the query that asked at the last choice if a refresh rule looks at
// drift:
//   sum(t)       = query(t), and sum(t - 1) added unless t is the first generated token of its segment
//   reference(t) = what asked at t if it has chosen, otherwise reference(t - 1)
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
      if (chooser.unsure()) {
        chooser.begin_otherwise();
        score_layers(row, queries, chooser, workers, thread);
        chooser.end_otherwise();
      }
    } else {
      score_layers(row, queries, chooser, workers, thread);
    }
    const choice_counts counts =
        chooser.finish(position_, item_.seq, into, row.row, state_.active_selection.row(row.row));
    remember_asked(row, queries, chooser);
    return counts;
  }

  /// False if the queries that share this row still point where they did at the last choice. Each head's products are
  /// added in the contract's order, then head after head.
  ///
  /// They have drifted if cos(asked, reference) < refresh.drift, where the heads of the row are one vector; also if one
  /// of the sums is NaN.
  /// @param queries  as of `choose`
  /// @pre   `remember` was called for the layers of the row, and the sequence has chosen before
  /// @cost  3 dot products of head_dim numbers for each query head of the row
  bool drifted(const choice_row& row, view<const float, 2> queries, chooser& chooser) {
    float along = 0.0f;
    float now = 0.0f;
    float then = 0.0f;
    for (index_t layer = row.first_layer; layer < row.last_layer; ++layer) {
      const head_queries asking = who(row, layer, queries);
      const view<float, 2> reference = record(layer, reference_part());
      for (index_t head = row.first_head; head < row.last_head; ++head) {
        const view<const float> query = chooser.query(asking, head);
        const view<const float> before = reference[head];
        on_fastest_path([&] {
          along += dot(query.data(), before.data(), query.size());
          now += dot(query.data(), query.data(), query.size());
          then += dot(before.data(), before.data(), query.size());
        });
      }
    }
    return !(along >= core_.policy.refresh.drift * square_root(now) * square_root(then));
  }

  /// Keeps what later choices need of this token's queries in one layer. In a second pass it replaces what the first
  /// has kept, but not what has asked in the first: that choice stays.
  /// @param queries  [heads, head_dim]  rotated
  /// @cost  copies the query of each head once for each part of a record
  void remember(index_t layer, view<const float, 2> queries, bool second_pass) {
    if (item_.prompt) return;
    const bool first = position_ == item_.first;
    for (index_t part = 0; part < (second_pass ? reference_part() : core_.sizes.query_parts); ++part) {
      const view<float, 2> before =
          first ? state_.queries.at(position_ - 1, part, layer) : core_.draft_queries.at(draft() - 1, part, layer);
      const view<float, 2> after = core_.draft_queries.at(draft(), part, layer);
      const bool adds = part < reference_part();
      for (index_t head = 0; head < queries.extent(0); ++head) {
        for (index_t d = 0; d < queries.extent(1); ++d) {
          const float old = adds && count() == 1 ? 0.0f : before(head, d);
          after(head, d) = adds ? old + queries(head, d) : old;
        }
      }
    }
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
  // The part of a record that holds the query of the last choice: it comes after the sums, if there are any.
  index_t reference_part() const { return core_.policy.query.sums ? 1 : 0; }

  // The zones of the query that asks.
  zone_bounds zone() const {
    if (!item_.prompt && item_.waits == refresh_action::keep) return core_.zone_of(state_, item_, position_);
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

  // Of a prompt the last token has a record, and it is the sequence's: its choice is made once the prompt is committed.
  view<float, 2> record(index_t layer, index_t part) {
    return item_.prompt ? state_.queries.at(position_, part, layer) : core_.draft_queries.at(draft(), part, layer);
  }

  // At the end of a prompt nothing has been summed: only generated tokens count, so that the token asks alone.
  head_queries who(const choice_row& row, index_t layer, view<const float, 2> queries) {
    const view<const float, 2> own = queries.data() != nullptr ? queries : core_.choice_queries.at(item_.seq, 0, layer);
    if (item_.prompt || reference_part() == 0) return {layer, row.first_head, row.last_head, own, own, 1};
    return {layer, row.first_head, row.last_head, own, record(layer, 0), count()};
  }

  void remember_asked(const choice_row& row, view<const float, 2> queries, chooser& chooser) {
    if (!core_.policy.drifts()) return;
    for (index_t layer = row.first_layer; layer < row.last_layer; ++layer) {
      const head_queries asking = who(row, layer, queries);
      const view<float, 2> reference = record(layer, reference_part());
      for (index_t head = row.first_head; head < row.last_head; ++head) {
        std::copy_n(chooser.query(asking, head).data(), reference.extent(1), reference[head].data());
      }
    }
  }

  cache_core<Pool>& core_;
  planned_item& item_;
  sequence_state& state_;
  index_t position_;
};

/// Makes the choice that an item's last token is due, from the queries noted in its pass; all rows of it.
///
/// Called when all layers have been seen: at the end of a prompt, or where the choice has waited for the commit, for
/// any scope; otherwise only where one row serves all layers, by `needs_second_pass` or `commit`. If the queries have
/// not drifted, `item.chosen` stays false, and the active selection stays.
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
      const refresh_action action = item.goes_on() ? item.waits : token.planned().action;
      const bool if_drifted = !item.prompt && action == refresh_action::choose_if_drifted;
      if (if_drifted && !token.drifted(row, {}, chooser)) {
        if (item.goes_on()) pending.assign(row.row, core.state_of(item).active_selection.row(row.row));
        continue;
      }
      token.choose(row, {}, pending, chooser, workers).add_to(core.state_of(item).stats);
      item.chosen = true;
    }
  }
}

}  // namespace zoomr::inline v0::detail

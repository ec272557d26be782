// SPDX-License-Identifier: Apache-2.0
// L6. The queries of a token: what is kept of them, and from which of them a choice is made.
//
// Of each token after the prompt there is a record [layers, heads, head_dim] if the query source sums: the sum over the
// open segment's queries,
//   sum(t) = query(t), and sum(t - 1) added unless t is the first generated token of its segment
// The records of a step are in `core.draft_queries`; commit copies those of accepted tokens into the sequence's ring.
// So a second pass, or another draft, finds the record before it unchanged.
#pragma once

#include <zoomr/cache/host/core.hpp>

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

/// Keeps the queries [heads, head_dim] of an item's last token for a choice that is made after the last layer.
template <class Pool>
void keep_for_choice(cache_core<Pool>& core, const planned_item& item, index_t layer, view<const float, 2> queries) {
  if (layout::asking_parts(core.policy) == 0) return;
  copy_queries(queries, core.choice_queries.at(item.seq, 0, layer));
}

/// One token of a step whose queries have come, in all layers or in those so far. It holds references only.
template <class Pool>
class token_queries {
 public:
  token_queries(cache_core<Pool>& core, planned_item& item, index_t position)
      : core_(core), item_(item), state_(core.state_of(item)), position_(position) {}

  /// Keeps what later choices and evictions need of the queries of a token after the prompt in one layer; in a second
  /// pass again.
  /// @param queries  [heads, head_dim]  rotated
  /// @cost  copies the query of each head up to three times
  void keep(index_t layer, view<const float, 2> queries) {
    if (core_.policy.query.sums) add_to_sum(layer, queries);
    if ((item_.chooses || item_.goes_on()) && position_ == item_.last()) keep_for_choice(core_, item_, layer, queries);
    if (core_.sizes.notes_queries()) keep_queries(core_, layer, queries, core_.eviction_queries, record());
  }

  /// The queries by which the heads of a row choose in one of its layers. At the end of a prompt they are the token's
  /// own alone: sums are of generated tokens.
  /// @param queries  [heads, head_dim]  rotated, of this layer; empty: those kept for a choice after the last layer
  head_queries of_row(const choice_row& row, index_t layer, view<const float, 2> queries) {
    const view<const float, 2> own = queries.data() != nullptr ? queries : core_.choice_queries.at(item_.seq, 0, layer);
    if (item_.prompt || !core_.policy.query.sums) return {layer, row.first_head, row.last_head, own, own, 1};
    return {layer, row.first_head, row.last_head, own, core_.draft_queries.at(record(), 0, layer), summed()};
  }

  /// Those by which heads vote, this token's included. Of a question that is turned its last span counts, as far as its
  /// queries are kept; of the last ones then those of the newest message alone, since the text before it asks nothing.
  query_positions scoring() {
    query_positions found = state_.scoring_queries(position_);
    if (found.turned) find_turned(found);
    return found;
  }
  /// The place from which a query scores: that of its token, or that of a question as if it were asked at the end of
  /// the last prompt.
  index_t place(scoring_query query) const { return query.position + (query.turned ? distance_ : 0); }
  /// The voters' queries at one of them.  [voters, head_dim]
  /// @pre  of a prompt, and of an item whose commit chooses, they are committed, or still kept for the step
  view<const float, 2> of_voters(scoring_query query) {
    if (query.turned) return core_.turned_queries.at(query.position, 0, 0);
    if (item_.prompt || query.position < item_.first) return state_.last_queries.at(query.position, 0, 0);
    return core_.eviction_queries.at(item_.draft + query.position - item_.first, 0, 0);
  }

 private:
  // Turns the queries of a question's last span, as far as they are kept, so that its last token is where the last
  // prompt ends.
  [[gnu::cold, gnu::noinline]] void find_turned(query_positions& found) {
    const view<const token_range> later = state_.ended_later_prompts();
    const index_t end = later.size() > 0 ? later[later.size() - 1].last : state_.prompt_end;
    const index_t last = state_.pins.named.last;
    const index_t angle = state_.model_position(end - 1) - state_.model_position(last - 1);
    const rotary_embedding& rotary = core_.limits.rotary;
    const key_rotation rotation(rotary.frequencies, angle, rotary.which, rotary.first);
    token_range& question = found.question;
    const index_t first = question.first;
    for (question.first = question.last; question.first > first; --question.first) {
      const index_t position = question.first - 1;
      const view<float, 2> from = state_.questions.find(position), to = core_.turned_queries.at(position, 0, 0);
      if (from.data() == nullptr || !has(state_.classes[position], token_class::question)) break;
      copy_queries(from, to);
      for (index_t voter = 0; voter < to.extent(0); ++voter) rotation(0, to[voter]);
    }
    found.turned = question.size() > 0;
    if (!found.turned) return;
    distance_ = end - last;
    state_.masses.turn(distance_, angle);
    for (index_t t = found.last.last; t > found.last.first; --t) {
      const bool committed = t <= state_.tokens();
      const token_class of_token = committed ? state_.classes[t - 1] : core_.step.token(item_, t - 1).classes;
      if (has(of_token, token_class::message)) found.last.first = t - 1;
    }
  }
  // Where this token's record is in `core.draft_queries`, and its queries in `core.eviction_queries`.
  index_t record() const { return item_.draft + position_ - item_.first; }
  // Queries in the running sum: those of generated tokens of the segment that the token belongs to.
  index_t summed() const {
    return position_ + 1 - (std::max)(core_.step.token(item_, position_).asks_from, state_.last_prompt_end());
  }

  // sum(t), see above.
  void add_to_sum(index_t layer, view<const float, 2> queries) {
    const view<float, 2> after = core_.draft_queries.at(record(), 0, layer);
    const view<float, 2> before = position_ == item_.first ? state_.queries.at(position_ - 1, 0, layer)
                                                           : core_.draft_queries.at(record() - 1, 0, layer);
    const bool begins = summed() == 1;
    for (index_t head = 0; head < queries.extent(0); ++head) {
      for (index_t d = 0; d < queries.extent(1); ++d) {
        after(head, d) = (begins ? 0.0f : before(head, d)) + queries(head, d);
      }
    }
  }

  cache_core<Pool>& core_;
  planned_item& item_;
  sequence_state& state_;
  index_t position_;
  index_t distance_ = 0;  // of a question that is turned
};

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L4. One head, one vote for each of its favourites.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Each query head votes for its `k` best segments, highest score first, ties to the lower id; who shares `per` adds up
/// the votes. A head with fewer eligible segments votes for all of them, those with a NaN score last.
/// @cost    O(segments + k log segments) for each head
/// @source  ZoomR, arXiv:2604.10898: k = 2, all heads of all layers (`scope::sequence`), as published
struct head_votes {
  using role = role::aggregator;
  static constexpr const char* name = "head_votes";
  static constexpr votes_t least = 1;  // a segment without a vote is not taken
  static constexpr bool counts = true;

  index_t k = 2;
  scope per = scope::sequence;

  void add(view<const float, 2> scores, view<const index_t>, index_t, view<votes_t> votes, view<index_t> order) const {
    add_each(scores, votes, order, [](index_t) { return votes_t{1}; });
  }
  /// A head's vote is its weight.
  void add_weighted(view<const float, 2> scores, view<const votes_t> weights, view<const index_t>, const score_logits&,
                    view<votes_t> votes, view<index_t> order) const {
    add_each(scores, votes, order, [&](index_t head) { return weights[head]; });
  }
  constexpr const char* problem() const { return k < 1 ? "head_votes: k must be at least 1" : nullptr; }
  static constexpr void each_field(auto& self, auto visit) {
    visit("k", self.k);
    visit("per", self.per);
  }
  friend constexpr bool operator==(const head_votes&, const head_votes&) = default;

 private:
  // vote(head) is what one vote of it counts.
  template <class Vote>
  void add_each(view<const float, 2> scores, view<votes_t> votes, view<index_t> order, Vote vote) const {
    for (index_t head = 0; head < scores.extent(0); ++head) {
      const auto key = [&](index_t id) {
        return votes[id] == not_eligible ? not_eligible : order_key(scores(head, id));
      };
      ranking favourites(votes.size(), key, order);
      for (index_t named = 0; named < k; ++named) {
        const index_t id = favourites.next();
        if (id < 0) break;
        votes[id] += vote(head);
      }
    }
  }
};

static_assert(aggregator<head_votes> && weight_taker<head_votes>);

}  // namespace zoomr::inline v0

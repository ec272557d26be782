// SPDX-License-Identifier: Apache-2.0
// L4. One head, one vote for each of its favourites.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr {
inline namespace v0 {

/// Each query head votes for its `k` best segments, highest score first, ties to the lower id; who shares `per` adds up
/// the votes. A head with fewer eligible segments votes for all of them, those with a NaN score last.
/// @cost    O(segments + k log segments) for each head
/// @source  ZoomR, arXiv:2604.10898: k = 2, all heads of all layers (`scope::sequence`), as published
struct head_votes {
  using role = role::aggregator;
  static constexpr const char* name = "head_votes";
  static constexpr votes_t least = 1;  // a segment without a vote is not wanted
  static constexpr bool counts = true;

  index_t k = 2;
  scope per = scope::sequence;

  void add(view<const float, 2> scores, view<const index_t>, index_t, view<votes_t> votes, view<index_t> order) const {
    for (index_t head = 0; head < scores.extent(0); ++head) {
      const auto key = [&](index_t id) {
        return votes[id] == not_eligible ? not_eligible : order_key(scores(head, id));
      };
      ranking favourites(votes.size(), key, order);
      for (index_t vote = 0; vote < k; ++vote) {
        const index_t id = favourites.next();
        if (id < 0) break;
        ++votes[id];
      }
    }
  }
  constexpr const char* problem() const { return k < 1 ? "head_votes: k must be at least 1" : nullptr; }
  static constexpr void each_field(auto& self, auto visit) {
    visit("k", self.k);
    visit("per", self.per);
  }
  friend constexpr bool operator==(const head_votes&, const head_votes&) = default;
};

static_assert(aggregator<head_votes>);

}  // namespace v0
}  // namespace zoomr

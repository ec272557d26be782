// SPDX-License-Identifier: Apache-2.0
// L6. Which tokens of a sequence each rank has: context parallel.
#pragma once

#include <zoomr/core/ranks/rank_group.hpp>
#include <zoomr/core/token_range.hpp>
#include <zoomr/paging/paged_kv_lane.hpp>

#include <algorithm>  // std::min

namespace zoomr::inline v0 {

/// The ranks that divide the keys and values of each sequence. Every rank's cache is called with all tokens and heads,
/// chooses as one cache would, attends its own slots, and gets what all have attended.
///
/// Slots are dealt out, `deal` after `deal`, to one rank after the other.
struct rank_tokens {
  rank_group group = {};
  index_t deal = 1024;  // slots: a multiple of 16

  constexpr bool alone() const { return group.ranks() == 1; }
  /// The rank that keeps what is in a slot.
  constexpr index_t owner(index_t slot) const { return slot / deal % group.ranks(); }
  constexpr bool owns(index_t slot) const { return owner(slot) == group.rank(); }
  /// The first slot of the next deal.
  constexpr index_t deal_end(index_t slot) const { return slot - slot % deal + deal; }
  /// Of so many slots, those that one rank keeps at most.
  constexpr index_t share(index_t slots) const {
    const std::int64_t round = std::int64_t{deal} * group.ranks();
    return static_cast<index_t>(slots / round * deal + (std::min<std::int64_t>)(slots % round, deal));
  }

  /// visit(range) for each piece of some slots that is this rank's, ascending.
  template <class Visit>
  constexpr void each_own(token_range slots, Visit visit) const {
    while (slots.first < slots.last) {
      const index_t end = (std::min)(slots.last, deal_end(slots.first));
      if (owns(slots.first)) visit(token_range{slots.first, end});
      slots.first = end;
    }
  }

  /// nullptr, or a sentence: what is wrong.
  constexpr const char* problem() const {
    if (group.ranks() < 1 || group.ranks() > rank_group::most_ranks) return "config: token_ranks must be 1 to 1024";
    if (group.rank() < 0 || group.rank() >= group.ranks())
      return "config: the rank of token_ranks' communicator is none of its ranks";
    if (deal < page_tokens || deal % page_tokens != 0 || deal > most_deal)
      return "config: token_ranks.deal must be a multiple of 16, up to 2^24";
    return nullptr;
  }
  static constexpr index_t most_deal = 1 << 24;
};

}  // namespace zoomr::inline v0

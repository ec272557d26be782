// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of head_votes.hpp.
#pragma once

#include <zoomr/policy/aggregate/aggregation.cuh>
#include <zoomr/policy/aggregate/head_votes.hpp>

namespace zoomr::inline v0 {

/// A segment's rank among all, as one word that a block can find the largest of: highest score first, ties to the lower
/// id; 0 is no segment's. No two segments have the same, so that the next vote goes to the largest word below the last
/// one.
__device__ inline std::uint64_t favour(float score, index_t id) {
  const auto high = static_cast<std::uint64_t>(order_key(score) + 2147483648);
  return high << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
}

namespace detail {
/// Each head in turn gives its votes to its `k` best segments.
/// @param weight  weight(head), what a vote of it counts; 0: it has none
template <class Weight>
__device__ void give_votes(const head_votes& rule, const aggregation& in, block_threads& block, Weight weight) {
  for (index_t head = 0; head < in.scores.extent(0); ++head) {
    if (weight(head) == 0) continue;
    std::uint64_t last = ~std::uint64_t{0};
    for (index_t vote = 0; vote < rule.k && last != 0; ++vote) {
      std::uint64_t own = 0;
      for (index_t id = block.thread(); id < in.votes.size(); id += block.size()) {
        if (in.votes[id] == not_eligible) continue;
        const std::uint64_t candidate = favour(in.scores(head, id), id);
        if (candidate < last && candidate > own) own = candidate;
      }
      // The thread that looks after the segment has found the word itself, and writes the vote.
      last = block.largest(own);
      if (last == 0 || last != own) continue;
      in.votes[static_cast<index_t>(0xffffffffu - static_cast<std::uint32_t>(last))] += weight(head);
    }
  }
}
}  // namespace detail

/// @cost  k passes over the scores of each head, each with a block-wide reduction
__device__ inline void aggregate(const head_votes& rule, const aggregation& in, block_threads& block) {
  detail::give_votes(rule, in, block, [](index_t) { return votes_t{1}; });
}
/// @cost  the same for each head that has a weight
__device__ inline void aggregate(const head_votes& rule, const weighted_aggregation& in, block_threads& block) {
  detail::give_votes(rule, in.heads, block, [&](index_t head) { return in.weights[head]; });
}

}  // namespace zoomr::inline v0

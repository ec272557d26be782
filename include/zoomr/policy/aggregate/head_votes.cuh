// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of head_votes.hpp.
#pragma once

#include <zoomr/policy/aggregate/aggregating.cuh>
#include <zoomr/policy/aggregate/head_votes.hpp>

namespace zoomr {
inline namespace v0 {

/// A segment's rank among all, as one word that a block can find the largest of: highest score first, ties to the lower
/// id; 0 is no segment's. No two segments have the same, so that the next vote goes to the largest word below the last
/// one.
__device__ inline std::uint64_t favour(float score, index_t id) {
  const auto high = static_cast<std::uint64_t>(order_key(score) + 2147483648);
  return high << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
}

/// Each head in turn gives its votes to its `k` best segments.
/// @cost  k passes over the scores of each head, each with a block-wide reduction
__device__ inline void aggregate(const head_votes& rule, const aggregation& in, block_threads& block) {
  for (index_t head = 0; head < in.scores.extent(0); ++head) {
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
      if (last != 0 && last == own) ++in.votes[static_cast<index_t>(0xffffffffu - static_cast<std::uint32_t>(last))];
    }
  }
}

}  // namespace v0
}  // namespace zoomr

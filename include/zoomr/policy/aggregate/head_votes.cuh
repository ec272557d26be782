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
/// Each head gives its votes to its `k` best segments. A warp finds one of a head, so that heads do not wait for each
/// other; the thread that looks after the segment adds the vote.
/// @param weight  weight(head), what a vote of it counts; 0: it has none
template <class Weight>
__device__ void give_votes(const head_votes& rule, const aggregation& in, block_threads& block, Weight weight) {
  __shared__ shared_array<std::uint64_t, 2 * warp_lanes> found;  // as `favour`, by the heads, in turn with those before
  const index_t lane = block.thread() % warp_lanes, warps = block.size() / warp_lanes, heads = in.scores.extent(0);
  for (index_t first = 0; first < heads; first += warp_lanes) {
    const index_t count = heads - first < warp_lanes ? heads - first : warp_lanes;
    __syncthreads();  // which segments are eligible is there, and the votes of the heads before are given
    for (index_t vote = 0; vote < rule.k; ++vote) {
      const index_t now = vote % 2 * warp_lanes, before = warp_lanes - now;
      for (index_t h = block.thread() / warp_lanes; h < count; h += warps) {
        const std::uint64_t last = vote > 0 ? found[before + h] : weight(first + h) == 0 ? 0 : ~std::uint64_t{0};
        std::uint64_t own = 0;
        for (index_t id = lane; last != 0 && id < in.votes.size(); id += warp_lanes) {
          if (in.votes[id] == not_eligible) continue;
          const std::uint64_t candidate = favour(in.scores(first + h, id), id);
          if (candidate < last && candidate > own) own = candidate;
        }
        own = warp_reduce(own, larger{});
        if (lane == 0) found[now + h] = own;
      }
      __syncthreads();
      for (index_t h = 0; h < count; ++h) {
        const std::uint64_t favourite = found[now + h];
        const auto id = static_cast<index_t>(0xffffffffu - static_cast<std::uint32_t>(favourite));
        if (favourite != 0 && id % block.size() == block.thread()) in.votes[id] += weight(first + h);
      }
    }
  }
}
}  // namespace detail

/// @cost  k passes over the scores of each head by a warp; k + 1 barriers for each 32 heads
__device__ inline void aggregate(const head_votes& rule, const aggregation& in, block_threads& block) {
  detail::give_votes(rule, in, block, [](index_t) { return votes_t{1}; });
}
/// @cost  the same for each head that has a weight
__device__ inline void aggregate(const head_votes& rule, const weighted_aggregation& in, block_threads& block) {
  detail::give_votes(rule, in.heads, block, [&](index_t head) { return in.weights[head]; });
}

}  // namespace zoomr::inline v0

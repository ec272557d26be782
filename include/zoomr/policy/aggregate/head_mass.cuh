// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of head_mass.hpp.
#pragma once

#include <zoomr/math/softmax.cuh>
#include <zoomr/policy/aggregate/aggregation.cuh>
#include <zoomr/policy/aggregate/head_mass.hpp>

namespace zoomr::inline v0 {

namespace detail {
/// Each head in turn spreads its mass.
/// @param weight  weight(head), how often its mass counts; 0: it has none
template <class Weight>
__device__ void spread_masses(const head_mass& rule, const aggregation& in, block_threads& block, Weight weight) {
  for (index_t head = 0; head < in.scores.extent(0); ++head) {
    if (weight(head) == 0) continue;
    const auto logit = [&](index_t id) -> softmax_logit {
      if (in.votes[id] == not_eligible) return {};
      return rule.logit(in.scores(head, id), in.logits, in.tokens[id]);
    };
    const auto mass = block_softmax(in.votes.size(), logit, block);
    if (mass.sum() == 0.0f) continue;
    for (index_t id = block.thread(); id < in.votes.size(); id += block.size()) {
      if (in.votes[id] != not_eligible) in.votes[id] += rule.counted(mass.share(id)) * weight(head);
    }
  }
}
}  // namespace detail

/// @cost  three passes over the scores of each head, two of them with a block-wide reduction
__device__ inline void aggregate(const head_mass& rule, const aggregation& in, block_threads& block) {
  detail::spread_masses(rule, in, block, [](index_t) { return votes_t{1}; });
}
/// @cost  the same for each head that has a weight
__device__ inline void aggregate(const head_mass& rule, const weighted_aggregation& in, block_threads& block) {
  detail::spread_masses(rule, in.heads, block, [&](index_t head) { return in.weights[head]; });
}

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of pooled_mass.hpp.
#pragma once

#include <zoomr/math/softmax.cuh>
#include <zoomr/policy/aggregate/aggregation.cuh>
#include <zoomr/policy/aggregate/pooled_mass.hpp>

namespace zoomr::inline v0 {

/// Each head in turn pools its mass with what is there.
/// @cost  three passes over the scores of each head, two of them with a block-wide reduction
__device__ inline void aggregate(const pooled_mass& rule, const aggregation& in, block_threads& block) {
  for (index_t head = 0; head < in.scores.extent(0); ++head) {
    const auto logit = [&](index_t id) -> softmax_logit {
      if (in.votes[id] == not_eligible) return {};
      return rule.logit(in.scores(head, id), in.logits);
    };
    const auto mass = block_softmax(in.votes.size(), logit, block);
    if (mass.sum() == 0.0f) continue;
    for (index_t id = block.thread(); id < in.votes.size(); id += block.size()) {
      if (in.votes[id] != not_eligible) in.votes[id] = rule.pooled(in.votes[id], mass.share(id));
    }
  }
}

}  // namespace zoomr::inline v0

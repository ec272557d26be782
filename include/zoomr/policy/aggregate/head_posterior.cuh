// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of head_posterior.hpp.
#pragma once

#include <zoomr/math/softmax.cuh>
#include <zoomr/policy/aggregate/aggregation.cuh>
#include <zoomr/policy/aggregate/head_posterior.hpp>

namespace zoomr::inline v0 {

/// Each segment's thread adds up its shares over the heads.
/// @cost  two passes over the shares of all heads, and two block-wide reductions
__device__ inline void aggregate(const head_posterior& rule, const share_aggregation& in, block_threads& block) {
  const view<float> sums = in.shares[0];
  for (index_t id = block.thread(); id < sums.size(); id += block.size()) {
    float sum = 0.0f;
    for (index_t head = 0; head < in.shares.extent(0); ++head) {
      sum = fused(in.weights[head], rule.counted(in.shares(head, id)), sum);
    }
    sums[id] = sum;
  }
  const auto logit = [&](index_t id) -> softmax_logit {
    if (in.votes[id] == not_eligible) return {};
    return sums[id];
  };
  const auto posterior = softmax_by(block, in.votes.size(), logit);
  if (posterior.sum() == 0.0f) return;
  for (index_t id = block.thread(); id < in.votes.size(); id += block.size()) {
    if (in.votes[id] != not_eligible) in.votes[id] = units_of(posterior.share(id));
  }
}

}  // namespace zoomr::inline v0

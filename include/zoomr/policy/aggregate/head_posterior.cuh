// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of head_posterior.hpp.
#pragma once

#include <zoomr/math/softmax.cuh>
#include <zoomr/policy/aggregate/aggregation.cuh>
#include <zoomr/policy/aggregate/head_posterior.hpp>

namespace zoomr::inline v0 {

/// Each segment's thread adds up its shares over the heads.
/// @cost  two passes over the shares of all heads, and two block-wide reductions, or three if none has a slope
__device__ inline votes_t aggregate(const head_posterior& rule, const share_aggregation& in, block_threads& block) {
  const view<float> sums = in.shares[0];
  for (index_t id = block.thread(); id < sums.size(); id += block.size()) {
    float sum = 0.0f;
    for (index_t head = 0; head < in.shares.extent(0); ++head) {
      sum = fused(in.weights[head], rule.counted(in.shares(head, id)), sum);
    }
    sums[id] = sum;
  }
  const index_t segments = in.votes.size();
  const bool has_none = in.none.exists();
  float logit_of_none = in.none.logit;
  if (has_none && in.none.slope != 0.0f) {
    index_t eligible = 0;
    for (index_t id = block.thread(); id < segments; id += block.size()) eligible += in.votes[id] != not_eligible;
    const index_t in_all = block.sum(eligible);
    logit_of_none = in.none.among(in_all > 0 ? in_all : 1);
  }
  const auto logit = [&](index_t id) -> softmax_logit {
    if (id == segments) return logit_of_none;
    if (in.votes[id] == not_eligible) return {};
    return sums[id];
  };
  const auto posterior = softmax_by(block, segments + (has_none ? 1 : 0), logit);
  if (posterior.sum() == 0.0f) return 0;
  for (index_t id = block.thread(); id < segments; id += block.size()) {
    if (in.votes[id] != not_eligible) in.votes[id] = units_of(posterior.share(id));
  }
  return has_none ? units_of(posterior.share(segments)) : 0;
}

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of pooled_score.hpp.
#pragma once

#include <zoomr/policy/aggregate/aggregation.cuh>
#include <zoomr/policy/aggregate/pooled_score.hpp>

namespace zoomr::inline v0 {

/// Each thread pools the scores of its segments.
/// @cost  one pass over the scores; no barrier
__device__ inline void aggregate(const pooled_score& rule, const aggregation& in, block_threads& block) {
  for (index_t id = block.thread(); id < in.votes.size(); id += block.size()) {
    if (in.votes[id] != not_eligible) in.votes[id] = rule.pooled(in.scores, id);
  }
}

}  // namespace zoomr::inline v0

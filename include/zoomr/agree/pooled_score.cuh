// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of pooled_score.hpp.
#pragma once

#include <zoomr/agree/agreeing.cuh>
#include <zoomr/agree/pooled_score.hpp>

namespace zoomr {
inline namespace v0 {

/// Each thread pools the scores of its segments.
/// @cost  one pass over the scores; no barrier
__device__ inline void agree(const pooled_score& rule, const agreeing& in, block_threads& block) {
  for (index id = block.thread(); id < in.tallies.size(); id += block.size()) {
    if (in.tallies[id] != not_eligible) in.tallies[id] = rule.pooled(in.scores, id);
  }
}

}  // namespace v0
}  // namespace zoomr

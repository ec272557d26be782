// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of pooled_mass.hpp.
#pragma once

#include <zoomr/agree/agreeing.cuh>
#include <zoomr/agree/pooled_mass.hpp>
#include <zoomr/math/softmax.cuh>

namespace zoomr {
inline namespace v0 {

/// Each head in turn pools its mass with what is there.
/// @cost  three passes over the scores of each head, two of them with a block-wide reduction
__device__ inline void agree(const pooled_mass& rule, const agreeing& in, block_threads& block) {
  const float scale = rule.scale(in.head_dim);
  for (index head = 0; head < in.scores.extent(0); ++head) {
    const auto logit = [&](index id) -> softmax_logit {
      if (in.tallies[id] == not_eligible) return {};
      return rule.logit(in.scores(head, id), scale);
    };
    const auto mass = block_softmax(in.tallies.size(), logit, block);
    if (mass.sum() == 0.0f) continue;
    for (index id = block.thread(); id < in.tallies.size(); id += block.size()) {
      if (in.tallies[id] != not_eligible) in.tallies[id] = rule.pooled(in.tallies[id], mass.share(id));
    }
  }
}

}  // namespace v0
}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of head_mass.hpp.
#pragma once

#include <zoomr/agree/agreeing.cuh>
#include <zoomr/agree/head_mass.hpp>
#include <zoomr/math/softmax.cuh>

namespace zoomr {
inline namespace v0 {

/// Each head in turn spreads its mass.
/// @cost  three passes over the scores of each head, two of them with a block-wide reduction
__device__ inline void agree(const head_mass& rule, const agreeing& in, block_threads& block) {
  const float scale = rule.scale(in.head_dim);
  for (index head = 0; head < in.scores.extent(0); ++head) {
    const auto logit = [&](index id) -> softmax_logit {
      if (in.tallies[id] == not_eligible) return {};
      return rule.logit(in.scores(head, id), scale, in.tokens[id]);
    };
    const auto mass = block_softmax(in.tallies.size(), logit, block);
    if (mass.sum() == 0.0f) continue;
    for (index id = block.thread(); id < in.tallies.size(); id += block.size()) {
      if (in.tallies[id] != not_eligible) in.tallies[id] += rule.counted(mass.share(id));
    }
  }
}

}  // namespace v0
}  // namespace zoomr

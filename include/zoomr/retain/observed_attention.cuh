// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of observed_attention.hpp.
#pragma once

#include <zoomr/retain/observed_attention.hpp>
#include <zoomr/retain/rating.cuh>

namespace zoomr {
inline namespace v0 {

/// Thread t rates the tokens t, t + threads, ...
/// @cost  reads what `pooling` tokens have received for each token and query head
__device__ inline void rate(const observed_attention& by, const lane_attention& seen, view<float> importance,
                            block_threads& block) {
  for (index t = block.thread(); t < seen.scored; t += block.size()) {
    importance[t] = seen.pooled(t, by.pooling, by.mean_of_group);
  }
}

static_assert(device_observer<observed_attention>);

}  // namespace v0
}  // namespace zoomr

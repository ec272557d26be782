// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of observation_window.hpp.
#pragma once

#include <zoomr/policy/evict/observation_window.hpp>
#include <zoomr/policy/evict/rating.cuh>

namespace zoomr::inline v0 {

/// Thread t rates the tokens t, t + threads, ...
/// @cost  reads what `pooling` tokens have received for each token and query head
__device__ inline void rate(const observation_window& evictor, const kv_lane_attention& seen, view<float> importance,
                            block_threads& block) {
  for (index_t t = block.thread(); t < seen.scored; t += block.size()) {
    importance[t] = seen.pooled(t, evictor.pooling, evictor.mean_of_group);
  }
}

static_assert(device_observer<observation_window>);

}  // namespace zoomr::inline v0

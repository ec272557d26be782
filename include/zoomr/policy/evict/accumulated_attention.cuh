// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of accumulated_attention.hpp.
#pragma once

#include <zoomr/policy/evict/accumulated_attention.hpp>
#include <zoomr/policy/evict/rating.cuh>

namespace zoomr::inline v0 {

/// Thread t rates the tokens t, t + threads, ...
__device__ inline void rate(const accumulated_attention&, const kv_lane_attention& seen, view<float> importance,
                            block_threads& block) {
  for (index_t t = block.thread(); t < seen.scored; t += block.size()) importance[t] = seen.pooled(t, 1, true);
}

static_assert(device_observer<accumulated_attention>);

}  // namespace zoomr::inline v0

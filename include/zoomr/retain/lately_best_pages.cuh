// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of lately_best_pages.hpp.
#pragma once

#include <zoomr/math/dot.cuh>
#include <zoomr/retain/lately_best_pages.hpp>
#include <zoomr/retain/rating.cuh>

namespace zoomr {
inline namespace v0 {

/// The most that any key of the page that begins at `first` can give, to all lanes of a warp; all call it.
/// @see lately_best_pages::hear
__device__ inline float page_bound(const heard_query& heard, index first, index every) {
  float partial = 0.0f;
  for (index d = static_cast<index>(threadIdx.x) % warp_lanes; d < heard.query.size(); d += partial_sums) {
    float low = heard.keys(first, d);
    float high = low;
    for (index t = first + 1; t < first + every; ++t) {
      const float key = heard.keys(t, d);
      if (key < low || key != key) low = key;
      if (key > high || key != key) high = key;
    }
    partial = fused(heard.query[d], heard.query[d] < 0.0f ? low : high, partial);
  }
  return warp_sum(partial);
}

/// A warp for each page finds its bound; then a thread for each page its rank and, where it is good enough, the stamps.
/// @cost  as on the host, and (pages of the lane)^2 comparisons; 1 barrier
__device__ inline void hear(const lately_best_pages& by, const heard_query& heard, view<float> received,
                            block_threads& block) {
  const index pages = (heard.keys.extent(0) - 1 - heard.pinned) / by.every;  // complete before this token
  const auto stamp = static_cast<float>(heard.position);
  const index warps = block.size() / warp_lanes;
  for (index page = block.thread() / warp_lanes; page < pages; page += warps) {
    const float bound = page_bound(heard, heard.pinned + page * by.every, by.every);
    if (block.thread() % warp_lanes == 0) heard.work[page] = bound;
  }
  __syncthreads();
  for (index page = block.thread(); page < pages; page += block.size()) {
    const tally own = sortable(heard.work[page]);
    index better = 0;
    for (index other = 0; other < pages; ++other) {
      const tally bound = sortable(heard.work[other]);
      better += bound > own || (bound == own && other < page) ? 1 : 0;
    }
    if (better >= by.renewed(pages)) continue;
    const index first = heard.pinned + page * by.every;
    for (index t = first; t < first + by.every; ++t) received[t] = stamp;
  }
  const index open = heard.pinned + pages * by.every;
  for (index t = open + block.thread(); t < heard.keys.extent(0); t += block.size()) received[t] = stamp;
}

/// Thread t rates the tokens t, t + threads, ...
__device__ inline void rate(const lately_best_pages&, const lane_attention& seen, view<float> importance,
                            block_threads& block) {
  for (index t = block.thread(); t < seen.scored; t += block.size()) importance[t] = seen.pooled(t, 1, false);
}

static_assert(device_observer<lately_best_pages> && device_hearing_observer<lately_best_pages>);

}  // namespace v0
}  // namespace zoomr

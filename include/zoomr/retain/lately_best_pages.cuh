// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of lately_best_pages.hpp.
#pragma once

#include <zoomr/math/dot.cuh>
#include <zoomr/retain/lately_best_pages.hpp>
#include <zoomr/retain/rating.cuh>

namespace zoomr {
inline namespace v0 {

/// The bound of the page that begins at `first`, to all lanes of a warp; all call it.
__device__ inline float page_bound(const lately_best_pages& by, const heard_query& heard, index first) {
  float partial = 0.0f;
  for (index d = static_cast<index>(threadIdx.x) % warp_lanes; d < heard.query.size(); d += partial_sums) {
    partial = by.bound_term(partial, heard, first, d);
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
    const float bound = page_bound(by, heard, heard.pinned + page * by.every);
    if (block.thread() % warp_lanes == 0) heard.work[page] = bound;
  }
  __syncthreads();
  for (index page = block.thread(); page < pages; page += block.size()) {
    if (by.rank(heard.work, pages, page) >= by.renewed(pages)) continue;
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

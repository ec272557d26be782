// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of recently_attended_pages.hpp.
#pragma once

#include <zoomr/math/dot.cuh>
#include <zoomr/policy/evict/rating.cuh>
#include <zoomr/policy/evict/recently_attended_pages.hpp>

namespace zoomr::inline v0 {

/// The bound of the page that begins at `first`, to all threads of a warp; all call it.
__device__ inline float page_bound(const recently_attended_pages& evictor, const observed_query& observed,
                                   index_t first) {
  float partial = 0.0f;
  for (index_t d = static_cast<index_t>(threadIdx.x) % warp_lanes; d < observed.query.size(); d += partial_sums) {
    partial = evictor.bound_term(partial, observed, first, d);
  }
  return warp_sum(partial);
}

/// A warp for each page finds its bound; then a thread for each page its rank and, where it is good enough, the stamps.
/// @cost  as on the host, and (pages of the KV lane)^2 comparisons; 1 barrier
__device__ inline void update_importance(const recently_attended_pages& evictor, const observed_query& observed,
                                         view<float> received, block_threads& block) {
  const index_t pages = (observed.keys.extent(0) - 1 - observed.pinned) / evictor.every;  // complete before this token
  const auto stamp = static_cast<float>(observed.position);
  const index_t warps = block.size() / warp_lanes;
  for (index_t page = block.thread() / warp_lanes; page < pages; page += warps) {
    const float bound = page_bound(evictor, observed, observed.pinned + page * evictor.every);
    if (block.thread() % warp_lanes == 0) observed.work[page] = bound;
  }
  __syncthreads();  // a page's rank is found from the bounds of all pages
  for (index_t page = block.thread(); page < pages; page += block.size()) {
    if (evictor.rank(observed.work, pages, page) >= evictor.renewed(pages)) continue;
    const index_t first = observed.pinned + page * evictor.every;
    for (index_t t = first; t < first + evictor.every; ++t) received[t] = stamp;
  }
  const index_t open = observed.pinned + pages * evictor.every;
  for (index_t t = open + block.thread(); t < observed.keys.extent(0); t += block.size()) received[t] = stamp;
}

/// Thread t rates the tokens t, t + threads, ...
__device__ inline void rate(const recently_attended_pages&, const kv_lane_attention& seen, view<float> importance,
                            block_threads& block) {
  for (index_t t = block.thread(); t < seen.scored; t += block.size()) importance[t] = seen.pooled(t, 1, false);
}

static_assert(device_observer<recently_attended_pages> && device_importance_updater<recently_attended_pages>);

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of redundancy_aware.hpp.
#pragma once

#include <zoomr/math/dot.cuh>
#include <zoomr/math/softmax.cuh>
#include <zoomr/policy/evict/rating.cuh>
#include <zoomr/policy/evict/redundancy_aware.hpp>

namespace zoomr::inline v0 {

/// Makes keys [tokens, head_dim] unit vectors, a warp for each. All threads call it; a barrier must follow.
__device__ inline void make_unit_keys(view<float, 2> keys, block_threads& block) {
  const index_t warp_lane = block.thread() % warp_lanes;
  for (index_t t = block.thread() / warp_lanes; t < keys.extent(0); t += block.size() / warp_lanes) {
    float partial = 0.0f;
    for (index_t d = warp_lane; d < keys.extent(1); d += partial_sums) partial = fused(keys(t, d), keys(t, d), partial);
    const float length = square_root(warp_sum(partial));
    for (index_t d = warp_lane; d < keys.extent(1); d += warp_lanes) {
      keys(t, d) = length > 0.0f ? quotient(keys(t, d), length) : 0.0f;
    }
  }
}

/// Visits the cosines of key `row` with all others, a thread for each: visit(t, cosine) on thread t % threads. A warp
/// multiplies with 32 keys at a time, so that each thread ends with the product of its own key. All threads call it.
/// @param keys  [tokens, head_dim]  unit vectors
template <class Visit>
__device__ void each_cosine(view<const float, 2> keys, index_t row, block_threads& block, Visit visit) {
  const index_t warp_lane = block.thread() % warp_lanes;
  for (index_t first = block.thread() - warp_lane; first < keys.extent(0); first += block.size()) {
    float partial[std::size_t{partial_sums}] = {};
    for (index_t d = warp_lane; d < keys.extent(1); d += partial_sums) {
      const float own = keys(row, d);
#pragma unroll
      for (index_t t = 0; t < warp_lanes; ++t) {
        const float other = first + t < keys.extent(0) ? keys(first + t, d) : 0.0f;
        partial[t] = fused(own, other, partial[t]);
      }
    }
    const float cosine = warp_sums(partial);
    const index_t t = first + warp_lane;
    if (t < keys.extent(0) && t != row) visit(t, cosine);
  }
}

/// A warp finds the logits of 32 tokens at a time; thread t adds to what the tokens t, t + threads, ... have received.
/// @cost  as on the host; 2 barriers
__device__ inline void update_importance(const redundancy_aware& evictor, const observed_query& observed,
                                         view<float> received, block_threads& block) {
  if (observed.head > 0) return;
  const index_t warp_lane = block.thread() % warp_lanes;
  for (index_t first = block.thread() - warp_lane; first < observed.earlier; first += block.size()) {
    float joined = 0.0f;
    const index_t own_token = first + warp_lane < observed.earlier ? first + warp_lane : observed.earlier - 1;
    for (index_t head = 0; head < observed.group.extent(0); ++head) {
      float partial[std::size_t{partial_sums}] = {};
      for (index_t d = warp_lane; d < observed.keys.extent(1); d += partial_sums) {
        const float query = observed.group(head, d);
#pragma unroll
        for (index_t t = 0; t < warp_lanes; ++t) {
          const float key = first + t < observed.earlier ? observed.keys(first + t, d) : 0.0f;
          partial[t] = fused(query, key, partial[t]);
        }
      }
      const float product = warp_sums(partial);
      joined = evictor.joined(head, joined, evictor.product_of(product, observed, head, own_token));
    }
    if (first + warp_lane < observed.earlier) observed.work[first + warp_lane] = evictor.logit_of(joined, observed);
  }
  // each thread reads the logits that it has written itself
  const auto shares = softmax_by(block, observed.earlier, [&](index_t t) { return observed.work[t]; });
  if (!(shares.sum() > 0.0f)) return;
  for (index_t t = block.thread(); t < observed.earlier; t += block.size()) received[t] += shares.share(t);
}

/// Thread t adds up the cosines of the tokens t, t + threads, ..., row by row as the host does.
/// @cost  twice tokens * tokens dot products; 1 barrier for each token
__device__ inline void rate(const redundancy_aware& evictor, const kv_lane_attention& seen, view<float> importance,
                            block_threads& block) {
  const index_t n = seen.tokens();
  make_unit_keys(seen.keys, block);
  for (index_t t = block.thread(); t < n; t += block.size()) importance[t] = 0.0f;
  __syncthreads();
  for (index_t row = 0; row < n; ++row) {
    index_t own = 0;  // where none repeats it
    each_cosine(seen.keys, row, block, [&](index_t t, float cosine) { own = cosine > evictor.similar ? t : own; });
    const index_t spared = block.largest(own);  // of the keys that repeat this one the last
    each_cosine(seen.keys, row, block, [&](index_t t, float cosine) {
      if (t != spared && !is_nan(cosine)) importance[t] += cosine;
    });
  }
  const auto redundancy =
      softmax_by(block, n, [&](index_t t) { return quotient(importance[t], static_cast<float>(n)); });
  for (index_t t = block.thread(); t < seen.scored; t += block.size()) {
    importance[t] = evictor.rated(seen, t, redundancy.share(t));
  }
}

static_assert(device_observer<redundancy_aware> && device_importance_updater<redundancy_aware>);

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L2. Device twin of dot.hpp: a warp adds up 32 sums over dimensions at once, each in the contract's order. A thread
// holds one of the 32 partial sums of all of them; the halving tree is walked for all together, every exchange halving
// what a thread still holds.
#pragma once

#include <zoomr/core/device/device.cuh>
#include <zoomr/math/dot.hpp>

namespace zoomr::inline v0 {

/// Adds what threads `Half` apart hold, each keeping half of the values; then the same for Half / 2, down to 1. Sums
/// are of two numbers, so that it does not matter which thread adds them.
template <index_t Half>
__device__ inline void halve(float (&partial)[std::size_t{partial_sums}], index_t warp_lane) {
  const bool upper = (warp_lane & Half) != 0;
#pragma unroll
  for (index_t v = 0; v < Half; ++v) {
    const float sent = upper ? partial[v] : partial[v + Half];
    const float kept = upper ? partial[v + Half] : partial[v];
    partial[v] = kept + __shfl_xor_sync(all_lanes, sent, Half);
  }
  if constexpr (Half > 1) halve<Half / 2>(partial, warp_lane);
}

/// Adds up 32 values over the threads of a warp, each in the contract's order; thread l gets the sum of value l. All
/// threads call it, each with the partial sum of the dimensions l, l + 32, ... of every value.
/// @cost  31 shuffles, where 32 sums one by one take 160
__device__ inline float warp_sums(float (&partial)[std::size_t{partial_sums}]) {
  halve<partial_sums / 2>(partial, static_cast<index_t>(threadIdx.x) % warp_lanes);
  return partial[0];
}

/// Adds up one value over the threads of a warp in the contract's order, for all threads; all call it.
__device__ inline float warp_sum(float partial) {
  for (int distance = partial_sums / 2; distance > 0; distance /= 2)
    partial += __shfl_xor_sync(all_lanes, partial, distance);
  return partial;
}

}  // namespace zoomr::inline v0

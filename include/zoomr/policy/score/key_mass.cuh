// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of key_mass.hpp: a warp makes the score of a segment from the logits of its keys, with the same bits.
#pragma once

#include <zoomr/core/device/warp.cuh>
#include <zoomr/math/order.hpp>
#include <zoomr/math/softmax.hpp>
#include <zoomr/policy/score/key_mass.hpp>

namespace zoomr::inline v0 {

/// The score of `keys` keys. All threads of a warp call it, and all get it.
/// @param logits  logits.make(first), then logits.again(first): that of key first + warp_lane, where there is one. All
///                threads call each for every 32 keys
/// @cost  every logit is made or read twice; two reductions of a warp
template <class Logits>
__device__ float score_keys(const key_mass&, index_t keys, Logits& logits) {
  constexpr votes_t odd = votes_t{1} << 32;  // of NaN: beyond all keys
  const auto warp_lane = static_cast<index_t>(threadIdx.x) % warp_lanes;
  votes_t own = order_key(-infinity);
  for (index_t first = 0; first < keys; first += warp_lanes) {
    const float logit = logits.make(first);
    const votes_t key = is_nan(logit) ? odd : order_key(logit);
    if (first + warp_lane < keys && key > own) own = key;
  }
  const votes_t highest = warp_reduce(own, detail::larger{});
  if (highest == odd) return not_a_number;
  const float largest = unsorted(highest);
  if (!(largest > -infinity && largest < infinity)) return largest;
  votes_t units = 0;
  for (index_t first = 0; first < keys; first += warp_lanes) {
    const float logit = logits.again(first);
    if (first + warp_lane < keys) units += units_of(exponential(logit - largest));
  }
  return largest + logarithm(sum_of_units(warp_reduce(units, detail::add{})));
}

}  // namespace zoomr::inline v0

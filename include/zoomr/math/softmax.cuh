// SPDX-License-Identifier: Apache-2.0
// L2. Device twin of softmax.hpp: a block finds the largest logit and the sum together, with the same bits.
#pragma once

#include <zoomr/core/device/block.cuh>
#include <zoomr/math/order.hpp>
#include <zoomr/math/softmax.hpp>

namespace zoomr::inline v0 {

/// The softmax of logit(i) for i in [0, n), the same in all threads of a block; all must call.
/// @cost  two passes over the logits, shared out over the threads; two block-wide reductions
template <class Logit>
__device__ softmax<Logit> softmax_by(block_threads& block, index_t n, Logit logit) {
  float own = -infinity;
  for (index_t i = block.thread(); i < n; i += block.size()) {
    const softmax_logit x = logit(i);
    if (x.takes_part && x.value > own) own = x.value;
  }
  softmax<Logit> result(unsorted(block.largest(order_key(own))), logit);
  votes_t units = 0;
  for (index_t i = block.thread(); i < n; i += block.size()) units += result.units(i);
  result.sum_up(block.sum(units));
  return result;
}

/// The softmaxes of several rows, as on the host. A warp finds the largest and the sum of a row, so that rows do not
/// wait for each other.
/// @cost  two passes over the logits of each row by a warp, one by a block; two barriers for each 32 rows
template <class Logit, class Visit>
__device__ void each_softmax(block_threads& block, index_t rows, index_t n, Logit logit, Visit visit) {
  __shared__ shared_array<float, warp_lanes> largest;
  __shared__ shared_array<votes_t, warp_lanes> units;
  const auto of_row = [&](index_t row) { return [&, row](index_t i) -> softmax_logit { return logit(row, i); }; };
  using row_softmax = softmax<decltype(of_row(0))>;
  const index_t lane = block.thread() % warp_lanes, warps = block.size() / warp_lanes;
  for (index_t first = 0; first < rows; first += warp_lanes) {
    const index_t count = rows - first < warp_lanes ? rows - first : warp_lanes;
    __syncthreads();  // what logits are made of is there, and the rows before are done
    for (index_t r = block.thread() / warp_lanes; r < count; r += warps) {
      const auto row_logit = of_row(first + r);
      float own = -infinity;
      for (index_t i = lane; i < n; i += warp_lanes) {
        const softmax_logit x = row_logit(i);
        if (x.takes_part && x.value > own) own = x.value;
      }
      const row_softmax shares(unsorted(warp_reduce(order_key(own), detail::larger{})), row_logit);
      votes_t weights = 0;
      for (index_t i = lane; i < n; i += warp_lanes) weights += shares.units(i);
      weights = warp_reduce(weights, detail::add{});
      if (lane == 0) largest[r] = shares.largest(), units[r] = weights;
    }
    __syncthreads();
    for (index_t r = 0; r < count; ++r) {
      row_softmax shares(largest[r], of_row(first + r));
      shares.sum_up(units[r]);
      if (shares.sum() == 0.0f) continue;
      for (index_t i = block.thread(); i < n; i += block.size()) visit(first + r, i, shares);
    }
  }
}

}  // namespace zoomr::inline v0

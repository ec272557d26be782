// SPDX-License-Identifier: Apache-2.0
// L2. Device twin of softmax.hpp: a block finds the largest logit and the sum together, with the same bits.
#pragma once

#include <zoomr/core/device/block.cuh>
#include <zoomr/math/order.hpp>
#include <zoomr/math/softmax.hpp>

namespace zoomr::inline v0 {

/// The softmax of logit(i) for i in [0, n), the same in all threads; all of the block, or of the warp, must call.
/// @tparam Workers  block_threads or warp_threads
/// @cost  two passes over the logits, shared out over the threads; two reductions
template <class Workers, class Logit>
__device__ softmax<Logit> softmax_by(Workers& workers, index_t n, Logit logit) {
  float own = -infinity;
  for (index_t i = workers.thread(); i < n; i += workers.size()) {
    const softmax_logit x = logit(i);
    if (x.takes_part && x.value > own) own = x.value;
  }
  softmax<Logit> result(unsorted(workers.largest(order_key(own))), logit);
  votes_t units = 0;
  for (index_t i = workers.thread(); i < n; i += workers.size()) units += result.units(i);
  result.sum_up(workers.sum(units));
  return result;
}

/// The softmaxes of several rows, as on the host. A warp finds the largest and the sum of a row, so that rows do not
/// wait for each other.
/// @cost  two passes over the logits of each row by a warp, one by a block; two barriers for each 32 rows
template <class Logit, class Visit>
__device__ void each_softmax(block_threads& block, index_t rows, index_t n, Logit logit, Visit visit) {
  __shared__ shared_array<float, warp_lanes> largest;
  __shared__ shared_array<float, warp_lanes> sums;
  const auto of_row = [&](index_t row) { return [&, row](index_t i) -> softmax_logit { return logit(row, i); }; };
  const index_t warps = block.size() / warp_lanes;
  for (index_t first = 0; first < rows; first += warp_lanes) {
    const index_t count = rows - first < warp_lanes ? rows - first : warp_lanes;
    __syncthreads();  // what logits are made of is there, and the rows before are done
    for (index_t r = block.thread() / warp_lanes; r < count; r += warps) {
      warp_threads warp;
      const auto shares = softmax_by(warp, n, of_row(first + r));
      if (warp.thread() == 0) largest[r] = shares.largest(), sums[r] = shares.sum();
    }
    __syncthreads();
    for (index_t r = 0; r < count; ++r) {
      const softmax shares(largest[r], sums[r], of_row(first + r));
      if (shares.sum() == 0.0f) continue;
      for (index_t i = block.thread(); i < n; i += block.size()) visit(first + r, i, shares);
    }
  }
}

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L2. Device twin of softmax.hpp: a block finds the largest logit and the sum together, with the same bits.
#pragma once

#include <zoomr/core/device/block.cuh>
#include <zoomr/math/order.hpp>
#include <zoomr/math/softmax.hpp>

namespace zoomr::inline v0 {

/// The softmax of logit(i) for i in [0, n), the same in all threads; all must call.
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

}  // namespace zoomr::inline v0

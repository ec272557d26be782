// SPDX-License-Identifier: Apache-2.0
// L4. What an evictor must offer for a device: its rating, by a block, and if it updates importance itself, that. Each
// evictor's device twin are overloads of `rate` and `update_importance`, found by the evictor's namespace.
//
// choose_kept_kernel (cache/device/eviction/observation.cuh) has a block for each KV head of a layer, and a barrier
// after `rate`; update_importance_kernel (cache/device/eviction/eviction_kernels.cuh) one for each query head, which
// sees the queries one after the other, in ascending order.
#pragma once

#include <zoomr/core/device/block.cuh>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Of an evictor that shares out its work by `rate_by`: thread t rates the tokens t, t + threads, ...
template <class Evictor>
requires requires(const Evictor& evict, block_threads& block, const kv_lane_attention& seen, view<float> importance) {
  evict.rate_by(block, seen, importance);
}
__device__ void rate(const Evictor& evict, const kv_lane_attention& seen, view<float> importance,
                     block_threads& block) {
  evict.rate_by(block, seen, importance);
}

/// An observer that can rate on a device: `rate(evictor, seen, importance, block)`, a `__device__` function beside it.
/// All threads of the block call it; it writes the importance of the scored tokens [scored] with the same bits as the
/// host's `rate`, and may use collectives of the block. `seen` and `importance` are in global memory.
template <class T>
concept device_observer = observer<T> &&
    requires(const T& evict, const kv_lane_attention& seen, view<float> importance, block_threads& block) {
  rate(evict, seen, importance, block);
};

/// An importance_updater that can do that on a device: `update_importance(evictor, observed, received, block)`, a
/// `__device__` function beside it. All threads of the block call it, and nothing after it before their next barrier.
/// `work` is the block's alone, and any thread may write it; keys are read by the blocks of all heads of a group.
template <class T>
concept device_importance_updater = importance_updater<T> && device_observer<T> &&
    requires(const T& evict, const observed_query& observed, view<float> received, block_threads& block) {
  update_importance(evict, observed, received, block);
};

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L4. What a retainer must offer for a device: its rating, by a block, and if it hears queries itself its hearing. Each
// retainer's device twin are overloads of `rate` and `hear`, found by the retainer's namespace.
#pragma once

#include <zoomr/concepts.hpp>
#include <zoomr/core/block.cuh>

namespace zoomr {
inline namespace v0 {

/// An observer that can rate on a device: `rate(retainer, seen, importance, block)`, a `__device__` function beside it.
/// All threads of the block call it; it writes the importance of the scored tokens [scored] with the same bits as the
/// host's `rate`, and may use collectives of the block. `seen` and `importance` lie in global memory.
template <class T>
concept device_observer = observer<T> &&
    requires(const T& retain, const lane_attention& seen, view<float> importance, block_threads& block) {
  rate(retain, seen, importance, block);
};

/// A hearing observer that can do that on a device: `hear(retainer, heard, received, block)`, a `__device__` function
/// beside it. All threads of the block call it, and nothing after it before their next barrier.
template <class T>
concept device_hearing_observer = hearing_observer<T> && device_observer<T> &&
    requires(const T& retain, const heard_query& heard, view<float> received, block_threads& block) {
  hear(retain, heard, received, block);
};

}  // namespace v0
}  // namespace zoomr

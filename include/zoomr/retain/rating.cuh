// SPDX-License-Identifier: Apache-2.0
// L4. What a retainer must offer for a device: its rating, by a block. Each retainer's device twin is an overload of
// `rate`, found by the retainer's namespace.
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

}  // namespace v0
}  // namespace zoomr

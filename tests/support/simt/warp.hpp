// SPDX-License-Identifier: Apache-2.0
// Stands in for CUB's reductions and scans of a warp (zoomr/core/warp.cuh), of the shuffles that CUB would use.
#pragma once

#include <support/simt/intrinsics.hpp>

namespace simt {

template <class T, class Join>
T warp_reduce(T value, Join join) {
  for (int apart = 16; apart > 0; apart /= 2) value = join(value, __shfl_xor_sync(0xffffffffu, value, apart));
  return value;
}

template <class T, class Join>
T warp_scan(T value, Join join) {
  const unsigned lane = threadIdx.x % 32;
  for (unsigned apart = 1; apart < 32; apart *= 2) {
    const T earlier = __shfl_up_sync(0xffffffffu, value, apart);
    if (lane >= apart) value = join(earlier, value);
  }
  return value;
}

}  // namespace simt

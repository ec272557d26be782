// SPDX-License-Identifier: Apache-2.0
// L1. What the threads of a warp do together: CUB's reductions and scans. CUB does not run where kernels run without a
// device; there a stand-in beside the SIMT shim takes its place (tests/support/simt/warp.hpp).
#pragma once

#include <zoomr/core/device/device.cuh>

#if !defined(ZOOMR_SIMT)
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#endif

namespace zoomr::inline v0 {
namespace detail {

// What `warp_reduce` and `block_threads` join values by.
struct add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
struct smaller {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};

}  // namespace detail

/// The values of all 32 threads, joined, to all of them. All threads call it. It is no barrier for memory.
/// @param join  associative and commutative
template <class T, class Join>
__device__ inline T warp_reduce(T value, Join join) {
#if defined(ZOOMR_SIMT)
  return simt::warp_reduce(value, join);
#else
  using reduction = cub::WarpReduce<T>;
  typename reduction::TempStorage none;  // shuffles need no memory
  return __shfl_sync(all_lanes, reduction(none).Reduce(value, join), 0);
#endif
}

/// The values of the threads up to this one, itself included, joined. All 32 threads call it; `join` as of
/// `warp_reduce`.
template <class T, class Join>
__device__ inline T warp_scan(T value, Join join) {
#if defined(ZOOMR_SIMT)
  return simt::warp_scan(value, join);
#else
  using scan = cub::WarpScan<T>;
  typename scan::TempStorage none;
  scan(none).InclusiveScan(value, value, join);
  return value;
#endif
}

}  // namespace zoomr::inline v0

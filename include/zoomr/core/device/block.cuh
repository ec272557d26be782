// SPDX-License-Identifier: Apache-2.0
// L1. What all threads of a block do together: sums, extremes and prefix sums, made of those of a warp
// (core/device/warp.cuh) and one word of shared memory for each warp. Not CUB's of a block: those are compiled for one
// number of threads, and one object here serves a kernel's calls of any type with one barrier each.
//
// Choices, ranges and eviction are made of these: all with integers, so that a block of any size gives the same bits.
#pragma once

#include <zoomr/core/device/warp.cuh>

namespace zoomr::inline v0 {

inline constexpr index_t most_warps = 32;  // of a block

/// Shared memory of `block_threads`: 512 bytes, one half for a call, the other for the call before it. It needs no
/// initial value.
struct block_scratch {
  shared_array<std::uint64_t, 2 * most_warps> of_warp;
};

/// What comes before a thread (an exclusive prefix, in the order of threadIdx.x), and what all threads have together,
/// which is the same in each.
template <class T>
struct scanned {
  T before;
  T all;
};

/// Collectives of a block, a row of up to 1024 threads and a multiple of 32. All threads call the same ones in the same
/// order; T is an integer of 32 or 64 bits. Integers add up to the same in any order.
///
/// One object for each scratch and kernel: it remembers which half of the scratch is free, so that one barrier for each
/// call is enough. What was written to memory before a call is seen by the whole block after it.
/// @cost  each: 1 barrier, 5 shuffles in a row twice
class block_threads {
 public:
  __device__ explicit block_threads(block_scratch& scratch)
      : scratch_(scratch),
        thread_(static_cast<index_t>(threadIdx.x)),
        threads_(static_cast<index_t>(blockDim.x)),
        lane_(thread_ % warp_lanes),
        warp_(thread_ / warp_lanes) {}

  __device__ index_t thread() const { return thread_; }
  __device__ index_t size() const { return threads_; }

  /// The sum, the largest or the smallest of the values of all threads, to all threads.
  template <class T>
  __device__ T sum(T value) {
    return fold(value, detail::add{}, T{0});
  }
  template <class T>
  __device__ T largest(T value) {
    return fold(value, detail::larger{}, lowest<T>);
  }
  template <class T>
  __device__ T smallest(T value) {
    return fold(value, detail::smaller{}, highest<T>);
  }

  /// The sum over the threads before this one, and over all.
  template <class T>
  __device__ scanned<T> sum_before(T value) {
    return scan(value, detail::add{}, T{0});
  }
  /// The largest value of the threads before this one (the lowest of its type if there are none), and of all.
  template <class T>
  __device__ scanned<T> max_before(T value) {
    return scan(value, detail::larger{}, lowest<T>);
  }

 private:
  template <class T>
  static constexpr T lowest = std::numeric_limits<T>::lowest();
  template <class T>
  static constexpr T highest = (std::numeric_limits<T>::max)();

  // Warps join their values, and every warp the results of all warps: so that no second barrier is needed to give the
  // result out. `none` changes nothing that it is joined with.
  template <class T, class Join>
  __device__ T fold(T value, Join join, T none) {
    return warp_reduce(shown_by_warps(warp_reduce(value, join), 0, none), join);
  }

  // The same with prefixes: what comes before a thread is that of the warps before its own, and of its own warp's.
  template <class T, class Join>
  __device__ scanned<T> scan(T value, Join join, T none) {
    const T through = warp_scan(value, join);
    const T warps = warp_scan(shown_by_warps(through, warp_lanes - 1, none), join);
    const T block_total = __shfl_sync(all_lanes, warps, warp_lanes - 1);
    const T earlier_warps = __shfl_sync(all_lanes, warps, warp_ > 0 ? warp_ - 1 : 0);
    const T earlier_lanes = __shfl_up_sync(all_lanes, through, 1u);
    return {join(warp_ > 0 ? earlier_warps : none, lane_ > 0 ? earlier_lanes : none), block_total};
  }

  // To thread w of each warp, what thread `speaker` of warp w has; to the threads after the last warp, `none`.
  template <class T>
  __device__ T shown_by_warps(T value, index_t speaker, T none) {
    const index_t half = turn_ * most_warps;
    turn_ = 1 - turn_;  // a slow thread may still read the other half: the next call's barrier waits for it
    if (lane_ == speaker) scratch_.of_warp[half + warp_] = static_cast<std::uint64_t>(value);
    __syncthreads();
    return lane_ < threads_ / warp_lanes ? static_cast<T>(scratch_.of_warp[half + lane_]) : none;
  }

  block_scratch& scratch_;
  index_t thread_;
  index_t threads_;
  index_t lane_;
  index_t warp_;
  index_t turn_ = 0;
};

/// The same of the threads of a warp, which do not wait for the others of their block.
/// @cost  each: 5 shuffles in a row
class warp_threads {
 public:
  __device__ index_t thread() const { return static_cast<index_t>(threadIdx.x) % warp_lanes; }
  __device__ static constexpr index_t size() { return warp_lanes; }
  template <class T>
  __device__ T sum(T value) const {
    return warp_reduce(value, detail::add{});
  }
  template <class T>
  __device__ T largest(T value) const {
    return warp_reduce(value, detail::larger{});
  }
};

/// True in the block that comes last of `blocks` which call this with one counter: it sees what all of them have
/// written before. Which block that is depends on the device. All threads call it.
/// @param arrived  zero before the first comes, and after the last
/// @param last     shared memory of this call alone
__device__ inline bool comes_last(unsigned* arrived, index_t blocks, shared_array<index_t, 1>& last) {
  // One thread's fences order what all threads write and read, since barriers order these before and after them.
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();  // what the block has written is there for all blocks before it is counted
    const bool is_last = atomicAdd(arrived, 1u) + 1 == static_cast<unsigned>(blocks);
    if (is_last) *arrived = 0;  // as the next launch, or replay of a graph, expects it
    last[0] = is_last ? 1 : 0;
    __threadfence();  // nothing that is read from here on was read before the count
  }
  __syncthreads();
  return last[0] != 0;
}

}  // namespace zoomr::inline v0

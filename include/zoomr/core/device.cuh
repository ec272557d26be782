// SPDX-License-Identifier: Apache-2.0
// L1. What kernels use of a device beyond CUDA's own words (threadIdx, __syncthreads, __shfl_xor_sync, atomicAdd):
// shared memory, asynchronous copies, launches. With ZOOMR_SIMT naming a header, that header stands for the device:
// the same code then runs on the host, one fiber for each thread (tests/support/simt.hpp).
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/types.hpp>

#include <cstddef>  // std::byte
#include <cstring>  // std::memcpy, std::memset
#include <memory>   // std::unique_ptr

#if defined(ZOOMR_SIMT)
#include ZOOMR_SIMT
#elif !defined(__CUDACC__)
#error "zoomr: a .cuh file is compiled by nvcc; host code includes the .hpp beside it"
#else
#include <cuda_runtime_api.h>
#endif

namespace zoomr {
inline namespace v0 {

inline constexpr index warp_lanes = 32;
inline constexpr unsigned all_lanes = 0xffffffffu;

/// How a kernel is started.
struct launch_shape {
  dim3 grid;
  dim3 block;
};

#if defined(ZOOMR_SIMT)

using stream = simt::stream;
template <class T, index N>
using shared_array = simt::shared_array<T, N>;
using simt::copy_async;
using simt::copy_async_commit;
using simt::copy_async_wait;
using simt::quick_exp2;
inline float load_shared_by_blocks(const float* from) { return *from; }

template <class... Parameters, class... Arguments>
void launch(launch_shape shape, stream, void (*kernel)(Parameters...), Arguments... arguments) {
  simt::run(shape.grid, shape.block, [&] { kernel(arguments...); });
}
inline void copy_to_device(void* to, const void* from, byte_count bytes, stream) {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
inline void zero_on_device(void* memory, byte_count bytes, stream) {
  std::memset(memory, 0, static_cast<std::size_t>(bytes));
}

/// Memory of the host that a device copies from without waiting.
class pinned_memory {
 public:
  explicit pinned_memory(byte_count bytes) : memory_(new std::byte[static_cast<std::size_t>(bytes)]) {}
  void* data() { return memory_.get(); }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

#else

using stream = cudaStream_t;

/// `N` objects in shared memory: `__shared__ shared_array<float, 32> sums;`
template <class T, index N>
struct alignas(16) shared_array {
  T at[N];
  __device__ T& operator[](index i) { return at[i]; }
};

/// Starts copying 16 bytes from global to shared memory; both aligned. Visible to this thread after
/// `copy_async_wait`, to others after a barrier that follows it.
template <class T>
__device__ inline void copy_async(T& to, const T* from) {
  static_assert(sizeof(T) == 16, "asynchronous copies are of 16 bytes");
#if __CUDA_ARCH__ >= 800
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(&to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(address), "l"(from) : "memory");
#else
  to = *from;
#endif
}
/// Closes a batch of copies.
__device__ inline void copy_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}
/// Waits until at most `Batches` of this thread's batches are under way.
template <int Batches>
__device__ inline void copy_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;\n" ::"n"(Batches) : "memory");
#endif
}

/// A number that another block has written, past this one's cache.
__device__ inline float load_shared_by_blocks(const float* from) { return __ldcg(from); }

/// 2^x to about 2^-22 of itself: for weights of attention. Scores use `exponential`, which has the same bits
/// everywhere.
__device__ inline float quick_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// @throws error(device) with what CUDA says, if it is not success
inline void expect_success(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw error(errc::device, std::string(what) + ": " + cudaGetErrorString(code));
}

/// @throws error(device) if the kernel cannot be started
template <class... Parameters, class... Arguments>
void launch(launch_shape shape, stream on, void (*kernel)(Parameters...), Arguments... arguments) {
  kernel<<<shape.grid, shape.block, 0, on>>>(arguments...);
  expect_success(cudaGetLastError(), "a kernel could not be started");
}

inline void copy_to_device(void* to, const void* from, byte_count bytes, stream on) {
  expect_success(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, on),
                 "a copy to the device could not be started");
}
inline void zero_on_device(void* memory, byte_count bytes, stream on) {
  expect_success(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), on), "device memory could not be cleared");
}

/// Memory of the host that a device copies from without waiting.
class pinned_memory {
 public:
  explicit pinned_memory(byte_count bytes) {
    expect_success(cudaMallocHost(&memory_, static_cast<std::size_t>(bytes)), "cannot allocate pinned memory");
  }
  pinned_memory(const pinned_memory&) = delete;
  pinned_memory& operator=(const pinned_memory&) = delete;
  ~pinned_memory() { cudaFreeHost(memory_); }
  void* data() { return memory_; }

 private:
  void* memory_ = nullptr;
};

#endif

}  // namespace v0
}  // namespace zoomr

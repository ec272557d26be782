// SPDX-License-Identifier: Apache-2.0
// L1. What kernels use of a device beyond CUDA's own words (threadIdx, __syncthreads, __shfl_xor_sync, atomicAdd):
// shared memory, asynchronous copies, tensor cores, launches. With ZOOMR_SIMT naming a header, that header stands for
// the device: the same code then runs on the host, one fiber for each thread (tests/support/simt.hpp).
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/storage.hpp>

#include <atomic>       // std::atomic
#include <type_traits>  // std::is_same_v

#if defined(ZOOMR_SIMT)
#include ZOOMR_SIMT
#elif !defined(__CUDACC__)
#error "zoomr: a .cuh file is compiled by nvcc; host code includes the .hpp beside it"
#else
#include <cuda_runtime_api.h>
#endif

namespace zoomr::inline v0 {

inline constexpr index_t warp_lanes = 32;
inline constexpr unsigned all_lanes = 0xffffffffu;  // the mask of shuffles in which each thread of a warp takes part

class early_kernel;

/// How a kernel is started. Kernels are compiled for one number of threads or read blockDim; shared memory is static.
struct launch_shape {
  dim3 grid;
  dim3 block;
  early_kernel* early =
      nullptr;  // its blocks may be there before the launch in front of it is done: they wait themselves
};

/// mma_16x8x16 in plain arithmetic, for devices whose tensor cores do not have these types. Blocks have one dimension.
/// Products are added in float, in ascending order.
/// @cost  32 shuffles and 64 multiplications in each thread
template <class Number>
__device__ inline void mma_by_shuffles(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  const auto at = [](unsigned pair, index_t half) {
    return to_float(Number{static_cast<std::uint16_t>(half == 0 ? pair : pair >> 16)});
  };
  const auto warp_lane = static_cast<index_t>(threadIdx.x) % warp_lanes;
  for (index_t k = 0; k < 8; ++k) {  // pairs of products
    const index_t row = warp_lane / 4 * 4 + k % 4;
    const unsigned upper = __shfl_sync(all_lanes, k < 4 ? a[0] : a[2], row);
    const unsigned lower = __shfl_sync(all_lanes, k < 4 ? a[1] : a[3], row);
    for (index_t column = 0; column < 2; ++column) {
      const unsigned other = __shfl_sync(all_lanes, k < 4 ? b[0] : b[1], (warp_lane % 4 * 2 + column) * 4 + k % 4);
      for (index_t half = 0; half < 2; ++half) {
        sums[column] += at(upper, half) * at(other, half);
        sums[2 + column] += at(lower, half) * at(other, half);
      }
    }
  }
}

#if defined(ZOOMR_SIMT)

using stream_ref = simt::stream_ref;
using simt::current_device;
template <class T, index_t N>
using shared_array = simt::shared_array<T, N>;
template <class... Shared>
inline constexpr bool fits_a_block = true;  // the shim keeps more beside
using simt::copy_async;
using simt::copy_async_commit;
using simt::copy_async_wait;
using simt::mma_16x8x16;
using simt::quick_exp2;
using simt::quick_max;
inline void wait_for_earlier_launches() {}
inline void let_next_launch_begin() {}
template <class T>
T load_shared_by_blocks(const T* from) {
  return *from;
}
template <class T>
void store_shared_by_blocks(T* to, const T& numbers) {
  *to = numbers;
}

class early_kernel {};
/// The shim has loaded all; it notes which kernels are said to be, for tests.
template <class... Parameters>
void load_kernel(void (*kernel)(Parameters...), early_kernel* = nullptr) {
  simt::loaded_kernels.insert(reinterpret_cast<const void*>(kernel));
}

/// Enqueues a kernel on a queue of the shim, which runs it in the host's thread when its turn comes: with the
/// threads of a block as fibers, one block after the other.
template <class... Parameters, class... Arguments>
void launch(launch_shape shape, stream_ref stream, void (*kernel)(Parameters...), Arguments... arguments) {
  simt::must_be_possible(shape.grid, shape.block);
  simt::launched_kernels.insert(reinterpret_cast<const void*>(kernel));
  simt::enqueue(stream, [=] { simt::run(shape.grid, shape.block, [&] { kernel(arguments...); }); });
}

#else

/// What work is enqueued on, in its order. zoomr makes none of the caller's, and waits for none except where
/// documented.
using stream_ref = cudaStream_t;

/// `N` objects in shared memory: `__shared__ shared_array<float, 32> sums;` A type of its own, since the shim's checks
/// each access against barriers.
template <class T, index_t N>
struct alignas(16) shared_array {
  T at[N];
  __device__ T& operator[](index_t i) { return at[i]; }
};

/// Whether these have room together in the shared memory of a block: 48 KiB, the most that any kernel uses.
template <class... Shared>
inline constexpr bool fits_a_block = (0 + ... + sizeof(Shared)) <= 48 * 1024;

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
/// Closes a batch of this thread's copies: those that it has started since the last one, which may be none.
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

/// Of a kernel that is launched `early`: what earlier launches of the stream have written is there. Every block calls
/// it before anything else, also one that has nothing to do, since the launch is over when its blocks are.
/// @source  PTX, griddepcontrol: programmatic dependent launch, from sm_90 on; elsewhere launches wait for each other
__device__ inline void wait_for_earlier_launches() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}
/// The next launch of the stream, if it is `early`, may take what is free once all blocks have called this or are done.
__device__ inline void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

/// A number, or several as a float2 or float4, that another block has written, past this one's cache. The order of
/// write and read is the callers': a fence and a counter, as in attention/gather_output.cuh.
template <class T>
__device__ T load_shared_by_blocks(const T* from) {
  return __ldcg(from);
}
/// Writes it, past this block's cache too.
template <class T>
__device__ void store_shared_by_blocks(T* to, const T& numbers) {
  __stcg(to, numbers);
}

/// 2^x to about 2^-22 of itself: for weights of attention. Scores use `exponential`, which has the same bits
/// everywhere.
__device__ inline float quick_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The larger number; where one is NaN, the other.
__device__ inline float quick_max(float a, float b) { return fmaxf(a, b); }

/// sums += A B on tensor cores: A has 16 rows of 16 numbers, B 8 columns of 16, sums 16 rows of 8. All threads of a
/// warp call it. A bfloat16 or float16 has half a word, the lower half that of the lower index; thread 4r + c has
///
/// @param sums  rows r, r + 8 (outer), columns 2c, 2c + 1; added up in float, in an order that the device chooses
/// @param a     rows r, r + 8 (inner), numbers 2c and 2c + 1 of a row, 2c + 8 and 2c + 9 (outer)
/// @param b     of column r the numbers 2c and 2c + 1, 2c + 8 and 2c + 9
/// @source      PTX, mma.m16n8k16
template <class Number>
__device__ inline void mma_16x8x16(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<Number, bfloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    static_assert(std::is_same_v<Number, float16>, "tensor cores multiply bfloat16 or float16");
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#else
  mma_by_shuffles<Number>(sums, a, b);
#endif
}

/// @param what  what has failed, for the sentence
/// @throws error(device) with CUDA's message, if it is not success
inline void expect_success(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  detail::raise(errc::device, std::string(what) + ": " + cudaGetErrorString(code));
}

/// The device that is current in this thread: what it makes is made there, and its launches go there.
/// @cost  a call of CUDA's runtime, which does not reach the device
inline int current_device() {
  int device = 0;
  expect_success(cudaGetDevice(&device), "there is no current device");
  return device;
}

/// A kernel that may be launched early: whether it waits for the launch in front of it, on each device. It does where
/// it was compiled for devices that can begin early. On such a device, but compiled for an older one, it has no such
/// instruction.
class early_kernel {
 public:
  /// @cost  on the first 64 devices CUDA is asked once for each, by `load_kernel` or with its first launch
  template <class... Parameters>
  bool waits_itself(void (*kernel)(Parameters...)) {
    const int device = current_device();
    const std::uint64_t bit = device < 64 ? std::uint64_t{1} << device : 0;
    if ((known_.load(std::memory_order_acquire) & bit) != 0) return (waits_.load(std::memory_order_relaxed) & bit) != 0;
    cudaFuncAttributes compiled{};
    const bool waits = cudaFuncGetAttributes(&compiled, kernel) == cudaSuccess && compiled.ptxVersion >= 90;
    if (waits) waits_.fetch_or(bit, std::memory_order_relaxed);
    known_.fetch_or(bit, std::memory_order_release);
    return waits;
  }

 private:
  std::atomic<std::uint64_t> known_{0}, waits_{0};  // a bit for each device
};

/// Loads a kernel on the current device, so that no launch does: one that loads its kernel takes longer, and may wait
/// for the device.
/// @param early  asked too, if the kernel may be launched so
/// @throws error(device) if it cannot be loaded
/// @cost   once for a kernel and device: to copy its code there; then a call of CUDA's runtime
/// @source CUDA programming guide, lazy loading: a kernel is loaded when it is first used or asked for
template <class... Parameters>
void load_kernel(void (*kernel)(Parameters...), early_kernel* early = nullptr) {
  cudaFuncAttributes loaded{};
  expect_success(cudaFuncGetAttributes(&loaded, kernel), "a kernel could not be loaded");
  if (early != nullptr) early->waits_itself(kernel);
}

/// Enqueues a kernel and does not wait for it. Arguments are copied by the call; what views and pointers among them
/// name must live until the kernel has run. A fault within the kernel shows in a later call. What an earlier call of
/// the thread has left for cudaGetLastError is neither taken for a fault of this launch, nor cleared.
/// @throws error(device) if the kernel cannot be started
template <class... Parameters, class... Arguments>
void launch(launch_shape shape, stream_ref stream, void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.stream = stream;
  if (shape.early != nullptr && shape.early->waits_itself(kernel)) {
    config.attrs = &early;
    config.numAttrs = 1;
  }
  expect_success(cudaLaunchKernelEx(&config, kernel, arguments...), "a kernel could not be started");
}

#endif

}  // namespace zoomr::inline v0

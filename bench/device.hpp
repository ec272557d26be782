// SPDX-License-Identifier: Apache-2.0
// What the device rows need of a device, on a GPU and under the SIMT shim alike: memory, noise, time, a cold L2,
// graphs.
#pragma once

#include <zoomr/core/storage.hpp>
#include <zoomr/core/streams.cuh>
#include <zoomr/core/view.hpp>

#include <rows.hpp>

#include <cstring>  // std::memcpy
#include <vector>   // std::vector

namespace zoomr_bench {

using zoomr::index;
using zoomr::stream;
using zoomr::view;

#if defined(ZOOMR_SIMT)

inline stream the_stream() { return {}; }
inline void wait() { simt::finish(the_stream()); }
inline void copy_to_host(void* to, const void* from, std::int64_t bytes) {
  wait();
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
inline void copy_to_device(void* to, const void* from, std::int64_t bytes) { copy_to_host(to, from, bytes); }
inline void copy_on_device(void* to, const void* from, std::int64_t bytes, stream on) {
  simt::enqueue(on, [=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
}
inline void* device_memory(std::int64_t bytes) {
  return ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{256});
}
inline void free_device_memory(void* memory) {
  simt::finish_all_quietly();
  ::operator delete (memory, std::align_val_t{256});
}
inline index multiprocessors() { return 4; }
inline std::int64_t flushed_bytes() { return 1024; }

/// What was enqueued once, to be launched again.
class graph {
 public:
  template <class Enqueue>
  void capture(Enqueue enqueue) {
    simt::begin_capture(the_stream());
    enqueue();
    made_ = simt::end_capture(the_stream());
  }
  void launch() { simt::launch(made_, the_stream()); }

 private:
  simt::graph made_;
};

#else

inline void must(cudaError_t code, const char* what) { zoomr::expect_success(code, what); }

inline stream the_stream() {
  static const stream made = [] {
    stream s;
    must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "no stream");
    return s;
  }();
  return made;
}
inline void wait() { must(cudaStreamSynchronize(the_stream()), "a launch has failed"); }
inline void copy_to_host(void* to, const void* from, std::int64_t bytes) {
  wait();
  must(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost), "a copy from the device");
}
inline void copy_to_device(void* to, const void* from, std::int64_t bytes) {
  must(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice), "a copy to the device");
}
inline void copy_on_device(void* to, const void* from, std::int64_t bytes, stream on) {
  must(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, on),
       "a copy on the device");
}
inline void* device_memory(std::int64_t bytes) {
  std::size_t free = 0, all = 0;
  must(cudaMemGetInfo(&free, &all), "no device");
  if (static_cast<std::size_t>(bytes) + (std::size_t{1} << 29) > free) {
    throw skipped("needs " + std::to_string(bytes >> 20) + " MiB of device memory, " + std::to_string(free >> 20) +
                  " MiB are free");
  }
  void* made = nullptr;
  must(cudaMalloc(&made, static_cast<std::size_t>(bytes)), "no device memory");
  return made;
}
inline void free_device_memory(void* memory) { cudaFree(memory); }
inline int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  must(cudaGetDevice(&device), "no device");
  must(cudaDeviceGetAttribute(&value, which, device), "no device");
  return value;
}
inline index multiprocessors() { return attribute(cudaDevAttrMultiProcessorCount); }
inline std::int64_t flushed_bytes() {
  return std::max(std::int64_t{256} << 20, std::int64_t{4} * attribute(cudaDevAttrL2CacheSize));
}

/// What was enqueued once, to be launched again.
class graph {
 public:
  graph() = default;
  graph(const graph&) = delete;
  graph& operator=(const graph&) = delete;
  ~graph() {
    if (made_ != nullptr) cudaGraphExecDestroy(made_);
  }
  template <class Enqueue>
  void capture(Enqueue enqueue) {
    cudaGraph_t captured = nullptr;
    must(cudaStreamBeginCapture(the_stream(), cudaStreamCaptureModeThreadLocal), "no capture");
    enqueue();
    must(cudaStreamEndCapture(the_stream(), &captured), "no capture");
    must(cudaGraphInstantiate(&made_, captured, 0), "no graph");
    must(cudaGraphDestroy(captured), "no graph");
  }
  void launch() { must(cudaGraphLaunch(made_, the_stream()), "no graph"); }

 private:
  cudaGraphExec_t made_ = nullptr;
};

#endif

/// `count` objects on the device, contents undefined, or copies of those of a vector.
template <class T>
class device_buffer {
 public:
  device_buffer() = default;
  explicit device_buffer(std::int64_t count) : count_(count) {
    data_ = static_cast<T*>(device_memory(std::max<std::int64_t>(1, count) * static_cast<std::int64_t>(sizeof(T))));
  }
  explicit device_buffer(const std::vector<T>& values) : device_buffer(static_cast<std::int64_t>(values.size())) {
    copy_to_device(data_, values.data(), bytes());
  }
  device_buffer(device_buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  device_buffer& operator=(device_buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~device_buffer() {
    if (data_ != nullptr) free_device_memory(data_);
  }

  T* data() const { return data_; }
  std::int64_t size() const { return count_; }
  std::int64_t bytes() const { return count_ * static_cast<std::int64_t>(sizeof(T)); }
  std::vector<T> values() const {
    std::vector<T> copy(static_cast<std::size_t>(count_));
    copy_to_host(copy.data(), data_, bytes());
    return copy;
  }

 private:
  T* data_ = nullptr;
  std::int64_t count_ = 0;
};

/// Fills memory with noise in [-1, 1).
template <class T>
__global__ void noise_kernel(T* to, std::int64_t count, std::uint32_t seed) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) {
    auto x = static_cast<std::uint32_t>(i) * 0x9e3779b9u + static_cast<std::uint32_t>(i >> 32) * 0x85ebca6bu + seed;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    x ^= x >> 16;
    to[i] = zoomr::from_float<T>(static_cast<float>(static_cast<std::int32_t>(x)) * 4.656612873e-10f);
  }
}
template <class T>
void fill_with_noise(T* to, std::int64_t count, std::uint32_t seed) {
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(toy ? 2 : 4096, (count + 255) / 256));
  if (count > 0) zoomr::launch({dim3(blocks), dim3(256)}, the_stream(), noise_kernel<T>, to, count, seed * 0x2545f491u);
}

/// Throws out what the L2 holds.
inline void flush_l2() {
  static const device_buffer<std::byte> other(flushed_bytes());
  zoomr::zero_on_device(other.data(), other.bytes(), the_stream());
}

enum class l2 { cold, warm };
inline const char* name_of(l2 state) { return state == l2::cold ? "cold" : "warm"; }

/// How often a warm row enqueues the same between two events.
inline constexpr int warm_launches = toy ? 1 : 10;

/// Times what `enqueue` enqueues, after a warm-up. Cold: alone, after the L2 was flushed; while that runs, the host
/// gets ahead, so that launches do not count unless they take longer than the device. Warm: ten times in a row.
template <class Enqueue>
std::vector<double> timed(l2 state, int iterations, Enqueue enqueue) {
  static zoomr::stream_timer clock;
  enqueue(), wait();
  std::vector<double> seconds;
  const int launches = state == l2::cold ? 1 : warm_launches;
  for (int i = 0; i < iterations; ++i) {
    if (state == l2::cold) flush_l2();
    clock.start(the_stream());
    for (int l = 0; l < launches; ++l) enqueue();
    clock.stop(the_stream());
    seconds.push_back(clock.seconds() / launches);
  }
  return seconds;
}

/// Bytes read and written a second by a copy of 1 GiB on the device, measured when it is first asked for.
inline double copy_bandwidth() {
  static const double measured = [] {
    const std::int64_t bytes = toy ? 4096 : std::int64_t{1} << 30;
    const device_buffer<std::byte> from(bytes), to(bytes);
    const auto seconds =
        timed(l2::cold, toy ? 1 : 20, [&] { copy_on_device(to.data(), from.data(), bytes, the_stream()); });
    return 2.0 * static_cast<double>(bytes) / std::max(quantile(seconds, 0.5), 1e-9);
  }();
  return measured;
}

/// A repetition that reads so many bytes: with its share of the copy's bandwidth.
inline result reading(std::vector<double> seconds, double bytes, double tokens = 0) {
  result of;
  const double median = std::max(quantile(seconds, 0.5), 1e-9);
  of.figures = {{"p50_us", median * 1e6},
                {"p90_us", quantile(seconds, 0.9) * 1e6},
                {"of_copy", bytes / median / copy_bandwidth()}};
  of.seconds = std::move(seconds);
  of.bytes = bytes;
  of.tokens = tokens;
  return of;
}

/// Blocks that share a row: enough to fill the device four times over, each with two tiles of tokens or more.
inline index splits_for(index rows, index tokens) {
  const index wanted = (4 * multiprocessors() + rows - 1) / rows;
  return std::max<index>(1, std::min<index>(wanted, tokens / 64));
}

}  // namespace zoomr_bench

// SPDX-License-Identifier: Apache-2.0
// Arrays on the device for tests that run under the shim and on a GPU alike.
#pragma once

#include <zoomr/core/device/streams.cuh>
#include <zoomr/core/view.hpp>

#include <algorithm>  // std::copy
#include <cstring>    // std::memcpy
#include <string>     // std::string
#include <vector>     // std::vector

namespace zoomr_test {

using zoomr::index_t;

#if defined(ZOOMR_SIMT)

/// Enqueues a copy to the host, for whoever waits for it before looking.
inline void copy_from_device(void* to, const void* from, std::size_t bytes, zoomr::stream_ref on) {
  simt::enqueue(on, [=] { std::memcpy(to, from, bytes); });
}
inline void wait_for(zoomr::stream_ref on) { simt::finish(on); }

/// Aligned as CUDA does it.
template <class T>
struct device_allocator {
  using value_type = T;
  device_allocator() = default;
  template <class Other>
  device_allocator(const device_allocator<Other>&) {}
  T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), alignment)); }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, alignment); }
  friend bool operator==(device_allocator, device_allocator) { return true; }
  static constexpr std::align_val_t alignment{256};
};

/// What a stream is given between `begin` and `end`, to be launched again and again.
class stream_graph {
 public:
  void begin(zoomr::stream_ref on) { simt::begin_capture(on); }
  void end(zoomr::stream_ref on) { made_ = simt::end_capture(on); }
  explicit operator bool() const { return made_ != nullptr; }
  void launch(zoomr::stream_ref on) const { simt::launch(made_, on); }

 private:
  simt::graph made_;
};

#else

inline void cuda_must(cudaError_t code) {
  if (code != cudaSuccess) throw zoomr::error(zoomr::errc::device, cudaGetErrorString(code));
}
inline void copy_from_device(void* to, const void* from, std::size_t bytes, zoomr::stream_ref on) {
  cuda_must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, on));
}
inline void wait_for(zoomr::stream_ref on) { cuda_must(cudaStreamSynchronize(on)); }

class stream_graph {
 public:
  stream_graph() = default;
  stream_graph(const stream_graph&) = delete;
  stream_graph& operator=(const stream_graph&) = delete;
  ~stream_graph() {
    if (made_ != nullptr) cudaGraphExecDestroy(made_);
  }
  void begin(zoomr::stream_ref on) { cuda_must(cudaStreamBeginCapture(on, cudaStreamCaptureModeGlobal)); }
  void end(zoomr::stream_ref on) {
    cudaGraph_t graph = nullptr;
    cuda_must(cudaStreamEndCapture(on, &graph));
    const cudaError_t code = cudaGraphInstantiate(&made_, graph, 0);
    cudaGraphDestroy(graph);
    cuda_must(code);
  }
  explicit operator bool() const { return made_ != nullptr; }
  void launch(zoomr::stream_ref on) const { cuda_must(cudaGraphLaunch(made_, on)); }

 private:
  cudaGraphExec_t made_ = nullptr;
};

#endif

/// A copy of some objects on the device.
template <class T>
class device_array {
 public:
#if defined(ZOOMR_SIMT)
  explicit device_array(const std::vector<T>& values) : values_(values.begin(), values.end()) {}
#else
  explicit device_array(std::vector<T> values) : values_(std::move(values)) {
    cuda_must(cudaMalloc(reinterpret_cast<void**>(&data_), bytes() > 0 ? bytes() : 1));
    cuda_must(cudaMemcpy(data_, values_.data(), bytes(), cudaMemcpyHostToDevice));
  }
#endif
  device_array(std::int64_t count, T value) : device_array(std::vector<T>(static_cast<std::size_t>(count), value)) {}
  device_array(const device_array&) = delete;
  device_array& operator=(const device_array&) = delete;
#if defined(ZOOMR_SIMT)
  ~device_array() { simt::finish_all_quietly(); }  // as CUDA does before memory goes
  T* data() { return values_.data(); }
  std::vector<T> values() {
    simt::finish_all();
    return {values_.begin(), values_.end()};
  }
  /// Writes at once, in no order with any stream.
  void write(const std::vector<T>& values) { std::copy(values.begin(), values.end(), values_.begin()); }
#else
  ~device_array() { cudaFree(data_); }
  T* data() { return data_; }
  /// What the device holds now; waits for what was launched.
  std::vector<T> values() {
    cuda_must(cudaDeviceSynchronize());
    cuda_must(cudaMemcpy(values_.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values_;
  }
  void write(const std::vector<T>& values) {
    cuda_must(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
#endif
  zoomr::view<T> view() { return {data(), {static_cast<index_t>(values_.size())}}; }

 private:
#if defined(ZOOMR_SIMT)
  std::vector<T, device_allocator<T>> values_;
#else
  std::size_t bytes() const { return values_.size() * sizeof(T); }
  T* data_ = nullptr;
  std::vector<T> values_;
#endif
};

}  // namespace zoomr_test

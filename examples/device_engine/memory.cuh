// SPDX-License-Identifier: Apache-2.0
// What the decoder needs of a device beside kernels: memory, a stream, copies back, and passes replayed as a graph.
// Under the SIMT shim the host stands for the device: memory is memory, and graphs are the shim's.
#pragma once

#include <zoomr/core/device/streams.cuh>

#include <cstring>  // std::memcpy, std::memset
#include <new>      // std::align_val_t
#include <span>     // std::span
#include <utility>  // std::exchange
#include <vector>   // std::vector

namespace decode::device {

using zoomr::byte_count;
using zoomr::index_t;
using zoomr::own_stream;  // the default stream cannot be captured

#if defined(ZOOMR_SIMT)

inline void* allocate(std::size_t bytes) {
  void* memory = ::operator new (bytes, std::align_val_t{256});
  return std::memset(memory, 0xff, bytes);  // NaN, so that reading what nobody has written is noticed
}
inline void release(void* memory) {
  simt::finish_all_quietly();
  ::operator delete (memory, std::align_val_t{256});
}
inline void copy_from_device(void* to, const void* from, std::size_t bytes, zoomr::stream_ref on) {
  simt::enqueue(on, [=] { std::memcpy(to, from, bytes); });
}
inline void wait_for(zoomr::stream_ref on) { simt::finish(on); }

/// A pass that is enqueued again and again: the first time as it is, then as a graph.
class replayed {
 public:
  template <class Enqueue>
  void operator()(Enqueue enqueue, zoomr::stream_ref on) {
    if (!std::exchange(warm_, true)) return enqueue();
    if (graph_ == nullptr) {
      simt::begin_capture(on);
      enqueue();
      graph_ = simt::end_capture(on);
    }
    simt::launch(graph_, on);
  }

 private:
  bool warm_ = false;
  simt::graph graph_;
};

#else

inline void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  zoomr::expect_success(cudaMalloc(&memory, bytes > 0 ? bytes : 1), "cannot allocate memory on the device");
  return memory;
}
inline void release(void* memory) { cudaFree(memory); }
inline void copy_from_device(void* to, const void* from, std::size_t bytes, zoomr::stream_ref on) {
  zoomr::expect_success(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, on),
                        "a copy from the device could not be started");
}
inline void wait_for(zoomr::stream_ref on) { zoomr::expect_success(cudaStreamSynchronize(on), "a pass on the device"); }

/// A pass that is enqueued again and again: the first time as it is, so that whatever a first launch sets up is set up;
/// the second time it is captured as a graph; from then on the graph is launched.
class replayed {
 public:
  replayed() = default;
  replayed(const replayed&) = delete;
  replayed& operator=(const replayed&) = delete;
  ~replayed() {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  }

  /// @param enqueue  enqueues the pass on `on`, each time with the same launches and the same arguments
  template <class Enqueue>
  void operator()(Enqueue enqueue, zoomr::stream_ref on) {
    if (!std::exchange(warm_, true)) return enqueue();
    if (graph_ == nullptr) capture(enqueue, on);
    zoomr::expect_success(cudaGraphLaunch(graph_, on), "a graph could not be launched");
  }

 private:
  template <class Enqueue>
  void capture(Enqueue enqueue, zoomr::stream_ref on) {
    cudaGraph_t recorded = nullptr;
    zoomr::expect_success(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), "a pass cannot be captured");
    try {
      enqueue();
    } catch (...) {
      if (cudaStreamEndCapture(on, &recorded) == cudaSuccess) cudaGraphDestroy(recorded);
      throw;
    }
    zoomr::expect_success(cudaStreamEndCapture(on, &recorded), "a pass cannot be captured");
    const cudaError_t made = cudaGraphInstantiate(&graph_, recorded, 0);
    cudaGraphDestroy(recorded);
    zoomr::expect_success(made, "a graph could not be made of a pass");
  }

  bool warm_ = false;
  cudaGraphExec_t graph_ = nullptr;
};

#endif

/// Some objects on the device.
template <class T>
class device_array {
 public:
  device_array() = default;
  explicit device_array(std::size_t count) : size_(count), data_(static_cast<T*>(allocate(count * sizeof(T)))) {}
  /// A copy of what the host has; waits for it.
  device_array(const std::vector<T>& values, zoomr::stream_ref on) : device_array(values.size()) {
    if (values.empty()) return;
    zoomr::copy_to_device(data_, values.data(), static_cast<byte_count>(size_ * sizeof(T)), on);
    wait_for(on);
  }
  device_array(device_array&& other) noexcept
      : size_(std::exchange(other.size_, 0)), data_(std::exchange(other.data_, nullptr)) {}
  device_array& operator=(device_array&& other) noexcept {
    std::swap(size_, other.size_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~device_array() {
    if (data_ != nullptr) release(data_);
  }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  std::size_t size_ = 0;
  T* data_ = nullptr;
};

/// Some objects on the host that the device copies from, or to, without waiting.
template <class T>
class pinned_array {
 public:
  explicit pinned_array(std::size_t count)
      : memory_(static_cast<byte_count>(count * sizeof(T))), all_(static_cast<T*>(memory_.data()), count) {}
  std::span<T> get() const { return all_; }

 private:
  zoomr::pinned_memory memory_;
  std::span<T> all_;
};

}  // namespace decode::device

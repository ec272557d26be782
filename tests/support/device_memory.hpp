// SPDX-License-Identifier: Apache-2.0
// Arrays on the device for tests that run under the shim and on a GPU alike.
#pragma once

#include <zoomr/core/device.cuh>
#include <zoomr/core/view.hpp>

#include <string>  // std::string
#include <vector>  // std::vector

namespace zoomr_test {

using zoomr::index;

#if !defined(ZOOMR_SIMT)
inline void cuda_must(cudaError_t code) {
  if (code != cudaSuccess) throw zoomr::error(zoomr::errc::device, cudaGetErrorString(code));
}
#endif

/// A copy of some objects on the device.
template <class T>
class device_array {
 public:
  explicit device_array(std::vector<T> values) : values_(std::move(values)) {
#if !defined(ZOOMR_SIMT)
    cuda_must(cudaMalloc(reinterpret_cast<void**>(&data_), bytes() > 0 ? bytes() : 1));
    cuda_must(cudaMemcpy(data_, values_.data(), bytes(), cudaMemcpyHostToDevice));
#endif
  }
  device_array(std::int64_t count, T value) : device_array(std::vector<T>(static_cast<std::size_t>(count), value)) {}
  device_array(const device_array&) = delete;
  device_array& operator=(const device_array&) = delete;
#if defined(ZOOMR_SIMT)
  T* data() { return values_.data(); }
  std::vector<T> values() { return values_; }
#else
  ~device_array() { cudaFree(data_); }
  T* data() { return data_; }
  /// What the device holds now; waits for what was launched.
  std::vector<T> values() {
    cuda_must(cudaDeviceSynchronize());
    cuda_must(cudaMemcpy(values_.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values_;
  }
#endif
  zoomr::view<T> view() { return {data(), {static_cast<index>(values_.size())}}; }

 private:
#if !defined(ZOOMR_SIMT)
  std::size_t bytes() const { return values_.size() * sizeof(T); }
  T* data_ = nullptr;
#endif
  std::vector<T> values_;
};

}  // namespace zoomr_test

// SPDX-License-Identifier: Apache-2.0
// Memory on the device that goes when its owner does.
#pragma once

#include <utility>  // std::exchange, std::swap
#include <vector>   // std::vector

#include "device.hpp"

namespace zoomr_bench {

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

}  // namespace zoomr_bench

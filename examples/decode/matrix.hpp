// SPDX-License-Identifier: Apache-2.0
// Numbers in the type in which a checkpoint stores them. Those of 16 bits stay so: they take half of the memory, and
// half of the time of a product with one token, which only reads them.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdint>  // std::int64_t
#include <memory>   // std::shared_ptr
#include <utility>  // std::move
#include <variant>  // std::variant, std::visit
#include <vector>   // std::vector

#include <zoomr/core/buffer.hpp>
#include <zoomr/core/storage.hpp>

#include "mapped_file.hpp"

namespace decode {

/// Numbers that are read: in memory of their own, or where they lie in a file, which stays mapped as long as they live.
/// They can be moved, not copied: no model needs its weights twice.
template <class T>
class stored_numbers {
 public:
  stored_numbers() = default;
  stored_numbers(zoomr::buffer<T> own) : own_(std::move(own)) {}
  /// @param data  in the file's memory, aligned as a T is
  stored_numbers(std::shared_ptr<const mapped_file> file, const T* data, std::int64_t count)
      : file_(std::move(file)), mapped_(data), count_(count) {}

  const T* data() const { return file_ ? mapped_ : own_.data(); }
  std::int64_t size() const { return file_ ? count_ : own_.size(); }
  zoomr::byte_count bytes() const { return size() * static_cast<zoomr::byte_count>(sizeof(T)); }
  /// Whether they lie in a file.
  bool mapped() const { return file_ != nullptr; }

 private:
  zoomr::buffer<T> own_;
  std::shared_ptr<const mapped_file> file_;
  const T* mapped_ = nullptr;
  std::int64_t count_ = 0;
};

/// F32, BF16 or F16.
using stored = std::variant<stored_numbers<float>, stored_numbers<zoomr::bfloat16>, stored_numbers<zoomr::float16>>;

/// Numbers [first, first + count) in float32, which holds each of them exactly.
inline std::vector<float> widened(const stored& numbers, std::size_t first, std::size_t count) {
  std::vector<float> wide(count);
  std::visit(
      [&](const auto& in) {
        for (std::size_t i = 0; i < count; ++i) wide[i] = zoomr::to_float(in.data()[first + i]);
      },
      numbers);
  return wide;
}

/// [rows, columns], row-major.
struct matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  stored numbers;

  bool empty() const { return rows == 0; }
  std::size_t bytes() const {
    return std::visit([](const auto& in) { return static_cast<std::size_t>(in.bytes()); }, numbers);
  }
  /// One row, or all of them, in float32.
  std::vector<float> row(std::size_t r) const { return widened(numbers, r * columns, columns); }
  std::vector<float> all() const { return widened(numbers, 0, rows * columns); }
};

}  // namespace decode

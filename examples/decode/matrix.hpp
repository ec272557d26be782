// SPDX-License-Identifier: Apache-2.0
// Numbers in the type in which a checkpoint stores them. Those of 16 bits stay so: they take half of the memory, and
// half of the time of a product with one token, which only reads them.
#pragma once

#include <cstddef>  // std::size_t
#include <variant>  // std::variant, std::visit
#include <vector>   // std::vector

#include <zoomr/core/buffer.hpp>
#include <zoomr/core/storage.hpp>

namespace decode {

/// F32, BF16 or F16.
using stored = std::variant<zoomr::buffer<float>, zoomr::buffer<zoomr::bfloat16>, zoomr::buffer<zoomr::float16>>;

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

/// [rows, columns], row-major. It can be moved, not copied: no model needs its weights twice.
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

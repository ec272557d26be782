// SPDX-License-Identifier: Apache-2.0
// Figures in columns.
#pragma once

#include <zoomr/core/types.hpp>

#include <ostream>  // std::ostream
#include <string>   // std::string
#include <utility>  // std::move
#include <vector>   // std::vector

namespace decode {

/// Columns with names, right-aligned but for the first.
class table {
 public:
  explicit table(std::vector<std::string> names) : rows_{std::move(names)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  void print(std::ostream& out) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// A number with so many digits after the point.
std::string fixed(double value, int digits);

/// Bytes in KiB.
std::string kib(zoomr::byte_count bytes);

}  // namespace decode

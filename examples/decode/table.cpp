// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include <algorithm>  // std::max
#include <cstddef>    // std::size_t
#include <cstdio>     // std::snprintf

namespace decode {

void table::print(std::ostream& out) const {
  std::vector<std::size_t> width(rows_.front().size());
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string pad(width[c] - row[c].size(), ' ');
      out << (c == 0 ? row[c] + pad : "  " + pad + row[c]);
    }
    out << '\n';
  }
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string kib(zoomr::byte_count bytes) { return fixed(static_cast<double>(bytes) / 1024, 1); }

}  // namespace decode

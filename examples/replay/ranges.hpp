// SPDX-License-Identifier: Apache-2.0
// Sets of positions as ranges, ascending and apart: what is attended is mostly adjacent.
#pragma once

#include <zoomr/core/token_range.hpp>
#include <zoomr/core/view.hpp>

#include <algorithm>  // std::max, std::min, std::upper_bound
#include <iterator>   // std::prev
#include <vector>     // std::vector

namespace replay {

using zoomr::index_t;
using zoomr::token_range;
using range_set = std::vector<token_range>;

/// @param positions  ascending
/// @param out        replaced
inline void collect(const std::vector<index_t>& positions, range_set& out) {
  out.clear();
  for (const index_t position : positions) {
    if (out.empty() || out.back().last != position) out.push_back({position, position});
    ++out.back().last;
  }
}

/// How many positions both have.
inline index_t overlap(const range_set& a, const range_set& b) {
  index_t common = 0;
  for (std::size_t i = 0, k = 0; i < a.size() && k < b.size(); (a[i].last < b[k].last ? i : k) += 1)
    common += std::max(0, std::min(a[i].last, b[k].last) - std::max(a[i].first, b[k].first));
  return common;
}

/// How many of some positions it has.
inline index_t hits(const range_set& set, zoomr::view<const index_t> positions) {
  index_t found = 0;
  for (const index_t position : positions) {
    const auto after = std::upper_bound(set.begin(), set.end(), position,
                                        [](index_t at, const token_range& range) { return at < range.first; });
    found += after != set.begin() && position < std::prev(after)->last ? 1 : 0;
  }
  return found;
}

}  // namespace replay

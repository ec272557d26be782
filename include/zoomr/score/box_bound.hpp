// SPDX-License-Identifier: Apache-2.0
// L4. The most that any key of a box can give.
#pragma once

#include <zoomr/concepts.hpp>

namespace zoomr {
inline namespace v0 {

/// Sum over dimensions of max(q min, q max): never below the largest q . k of the segment, up to rounding.
/// @cost    2 products, a maximum and an addition for each dimension
/// @source  Quest, arXiv:2406.10774: as published
struct box_bound {
  using role = role::scorer;
  static constexpr const char* name = "box_bound";
  using summary = summary::box;

  ZOOMR_HD float term(float acc, float query, const cells<2>& box) const {
    const float low = query * box.row[0];
    const float high = query * box.row[1];
    return acc + (low > high || low != low ? low : high);
  }
  constexpr const char* problem() const { return nullptr; }
  static constexpr void each_field(auto&, auto) {}
  friend constexpr bool operator==(const box_bound&, const box_bound&) = default;
};

static_assert(scorer<box_bound>);

}  // namespace v0
}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// L4. The most that any key of a box can give.
#pragma once

#include <zoomr/math/functions.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Sum over dimensions of max(q min, q max): never below the largest q . k of the segment, as `dot` rounds it, and
/// equal to it for one key: the sign of q decides which is larger, and every rounding after that keeps the order.
/// With a `key_cuboid`, whose box need not hold every key, it is an estimate. A box with NaN ranks last.
/// @cost    a comparison and 1 fma for each dimension
/// @source  Quest, arXiv:2406.10774: as published
struct box_bound {
  using role = role::scorer;
  static constexpr const char* name = "box_bound";
  using summary = summary::box;
  static constexpr bool homogeneous = true;

  ZOOMR_HD float term(float acc, float query, const cells<2>& box) const {
    return fused(query, query < 0.0f ? box.row[0] : box.row[1], acc);
  }
  ZOOMR_HD float weight(float query, index_t row) const {
    return (query < 0.0f) == (row == 0) || is_nan(query) ? query : 0.0f;
  }
  friend constexpr bool operator==(const box_bound&, const box_bound&) = default;
};

static_assert(scorer<box_bound> && linear_scorer<box_bound>);

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L4. The box that holds all keys: what `box_bound` needs for the largest product that any of them can give.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// The elementwise minimum and maximum of the cue's keys. A NaN key makes both NaN, so that it ranks last.
/// An empty cue leaves a box from +inf to -inf, whose bound is -inf or NaN: it ranks last too.
/// @cost    2 comparisons for each key and dimension, once, when the segment closes
/// @source  Quest, arXiv:2406.10774: as published
struct key_box {
  using role = role::summarizer;
  static constexpr const char* name = "key_box";
  using summary = summary::box;

  ZOOMR_HD constexpr cells<2> open() const { return {{infinity, -infinity}}; }
  ZOOMR_HD constexpr void fold(cells<2>& box, float key) const {
    if (key < box.row[0] || is_nan(key)) box.row[0] = key;  // once NaN, no comparison is true again
    if (key > box.row[1] || is_nan(key)) box.row[1] = key;
  }
  ZOOMR_HD constexpr void close(cells<2>&, index_t) const {}
  friend constexpr bool operator==(const key_box&, const key_box&) = default;
};

static_assert(summarizer<key_box>);

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L4. The cuboid around the middle of the keys, as wide as they are from it on the average.
#pragma once

#include <zoomr/math/functions.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// For each dimension c - r and c + r: c is midway between the smallest and the largest of the cue's keys, r is the
/// mean of their distances from c. So keys may be outside, and `box_bound` is an estimate, no bound. A key that is no
/// number makes both NaN, and an infinite one at least one of them, so that the segment ranks last.
/// @cost    4 flops for each key and dimension, once, when the segment closes
/// @source  ArkVale, NeurIPS 2024: its "cuboid mean", as its released code has it
struct key_cuboid {
  using role = role::summarizer;
  static constexpr const char* name = "key_cuboid";
  using summary = summary::box;

  void make(view<const float, 2> keys, view<index_t>, view<float>, view<float, 2> out) const {
    for (index_t d = 0; d < keys.extent(1); ++d) {
      const cells<2> sides = of_dimension(keys.extent(0), [&](index_t t) { return keys(t, d); });
      out(d, 0) = sides.row[0];
      out(d, 1) = sides.row[1];
    }
  }
  /// One dimension, on a device too: key(t) of `count` keys in ascending order.
  ZOOMR_CALLS_EITHER
  template <class Key>
  ZOOMR_HD static cells<2> of_dimension(index_t count, Key key) {
    float low = infinity;
    float high = -infinity;
    for (index_t t = 0; t < count; ++t) {
      const float own = key(t);
      if (own < low || is_nan(own)) low = own;  // once NaN, no comparison is true again
      if (own > high || is_nan(own)) high = own;
    }
    const float centre = (low + high) * 0.5f;
    float sum = 0.0f;
    for (index_t t = 0; t < count; ++t) {
      const float distance = centre - key(t);
      sum += distance < 0.0f ? -distance : distance;
    }
    const float radius = quotient(sum, static_cast<float>(count));
    return {{centre - radius, centre + radius}};
  }
  friend constexpr bool operator==(const key_cuboid&, const key_cuboid&) = default;
};

static_assert(summarizer<key_cuboid> && block_summarizer<key_cuboid>);

}  // namespace zoomr::inline v0

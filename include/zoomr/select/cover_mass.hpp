// SPDX-License-Identifier: Apache-2.0
// L4. As many segments as hold most of the attention.
#pragma once

#include <zoomr/taking.hpp>

namespace zoomr {
inline namespace v0 {

/// Takes segments, best first, until together they have `share` of all tallies, or are `segments`: one where the
/// heads agree, more where they do not. Needs a consensus whose tallies add up, like `head_mass`.
/// @source  zoomr; the idea of a share instead of a count: Twilight, arXiv:2502.02770
struct cover_mass {
  using role = role::selector;
  static constexpr const char* name = "cover_mass";
  static constexpr bool needs_counts = true;
  float share = 0.5f;
  index segments = 4;

  /// At most so many segments of a row have their details chosen: what a log of choices must hold.
  constexpr index most_segments() const { return segments; }

  ZOOMR_HD constexpr take_limits limits(index) const { return {.segments = segments, .share = share}; }
  void choose(best_first& order, const selection_input& input, selection_row& row) const {
    take_best(order, limits(input.room_used), input, row);
  }
  constexpr const char* problem() const {
    return segments < 1 || !(share > 0.0f && share <= 1.0f)
               ? "cover_mass: segments must be at least 1, and share in (0, 1]"
               : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("share", self.share);
    visit("segments", self.segments);
  }
  friend constexpr bool operator==(const cover_mass&, const cover_mass&) = default;
};

static_assert(limited_selector<cover_mass>);

}  // namespace v0
}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// L4. As many segments as hold most of the attention.
#pragma once

#include <zoomr/policy/take_best.hpp>

namespace zoomr::inline v0 {

/// Takes segments, best first, until together they have `share` of all votes, or are `segments`: one where the
/// heads agree, more where they do not. Needs an aggregator whose votes add up, like `head_mass`.
/// @source  zoomr; the idea of a share instead of a count: Twilight, arXiv:2502.02770
struct top_p {
  using role = role::selector;
  static constexpr const char* name = "top_p";
  static constexpr bool needs_counts = true;
  float share = 0.5f;
  index_t segments = 4;

  /// At most so many segments of a row have their details chosen: what a log of choices must hold.
  constexpr index_t most_segments() const { return segments; }

  ZOOMR_HD constexpr take_limits limits(index_t) const { return {.segments = segments, .share = share}; }
  void choose(best_first& order, const selection_input& input, selection_row& row) const {
    take_best(order, limits(input.room_used), input, row);
  }
  constexpr const char* problem() const {
    return segments < 1 || !(share > 0.0f && share <= 1.0f) ? "top_p: segments must be at least 1, and share in (0, 1]"
                                                            : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("share", self.share);
    visit("segments", self.segments);
  }
  friend constexpr bool operator==(const top_p&, const top_p&) = default;
};

static_assert(limited_selector<top_p>);

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L4. The best few segments.
#pragma once

#include <zoomr/policy/take_best.hpp>

namespace zoomr::inline v0 {

/// Takes the best `segments` segments, as long as their details fit into `tokens` tokens together; of the
/// first that does not fit, its first tokens.
/// Zones and summaries do not count in `tokens`. Fewer are taken if fewer have the votes that their aggregator
/// requires.
/// @source  ZoomR, arXiv:2604.10898: c = 2 without a limit in tokens; Quest: top-k pages
struct top_k {
  using role = role::selector;
  static constexpr const char* name = "top_k";
  index_t segments = 2;
  index_t tokens = unlimited;

  /// At most so many segments of a row have their details chosen: what a log of choices must hold.
  constexpr index_t most_segments() const { return segments; }

  ZOOMR_HD constexpr take_limits limits(index_t) const { return {.segments = segments, .room = tokens}; }
  void choose(best_first& order, const selection_input& input, selection_row& row) const {
    take_best(order, limits(input.room_used), input, row);
  }
  constexpr const char* problem() const {
    return segments < 1 || tokens < 1 ? "top_k: segments and tokens must be at least 1" : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("segments", self.segments);
    visit("tokens", self.tokens);
  }
  friend constexpr bool operator==(const top_k&, const top_k&) = default;
};

static_assert(limited_selector<top_k>);

}  // namespace zoomr::inline v0

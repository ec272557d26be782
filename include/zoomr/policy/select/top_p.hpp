// SPDX-License-Identifier: Apache-2.0
// L4. As many segments as hold most of the attention.
#pragma once

#include <zoomr/policy/take_best.hpp>

namespace zoomr::inline v0 {

/// Takes segments, best first, until together they have `share` of all votes, or are `segments`: one where the
/// heads agree, more where they do not. Needs an aggregator whose votes add up, like `head_mass`.
///
/// Each of them brings its `neighbours`: so many eligible segments before it, and so many after it, unless they are
/// taken already. They count in `tokens`, not in `share` and `segments` (`take_neighbours`).
///
/// Takes all of that as long as its details fit into `tokens` tokens together; of the first that does not fit, its
/// first tokens. Neighbours come after all that has the share, so that they take what room it leaves. Zones and
/// summaries do not count in `tokens`.
/// @source  zoomr; the idea of a share instead of a count: Twilight, arXiv:2502.02770
struct top_p {
  using role = role::selector;
  static constexpr const char* name = "top_p";
  static constexpr bool needs_counts = true;
  float share = 0.5f;
  index_t segments = 4;
  index_t tokens = unlimited;
  index_t neighbours = 0;

  /// At most so many segments of a row have their details chosen, neighbours too: what a log of choices must hold.
  constexpr index_t most_segments() const {
    const std::int64_t most = segments * (1 + 2 * std::int64_t{neighbours});
    return most < unlimited ? static_cast<index_t>(most) : unlimited;
  }

  ZOOMR_HD constexpr take_limits limits(index_t) const {
    return {.segments = segments, .room = tokens, .share = share};
  }
  void choose(best_first& order, const selection_input& input, selection_row& row) const {
    take_best(order, limits(input.room_used), input, row);
    take_neighbours(order, neighbours, tokens, input, row);
  }
  constexpr const char* problem() const {
    if (segments < 1 || !(share > 0.0f && share <= 1.0f)) {
      return "top_p: segments must be at least 1, and share in (0, 1]";
    }
    return tokens < 1 || neighbours < 0 ? "top_p: tokens must be at least 1, and neighbours not negative" : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("share", self.share);
    visit("segments", self.segments);
    visit("tokens", self.tokens);
    visit("neighbours", self.neighbours);
  }
  friend constexpr bool operator==(const top_p&, const top_p&) = default;
};

static_assert(brings_neighbours<top_p>);

}  // namespace zoomr::inline v0

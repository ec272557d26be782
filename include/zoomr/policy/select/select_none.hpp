// SPDX-License-Identifier: Apache-2.0
// L4. No details.
#pragma once

#include <zoomr/policy/take_best.hpp>

namespace zoomr::inline v0 {

/// Zooms into nothing: what is attended is the zones, and the summaries if there are any.
struct select_none {
  using role = role::selector;
  static constexpr const char* name = "select_none";
  ZOOMR_HD constexpr take_limits limits(index_t) const { return {.segments = 0}; }
  void choose(best_first&, const selection_input&, selection_row&) const {}
  friend constexpr bool operator==(const select_none&, const select_none&) = default;
};

static_assert(limited_selector<select_none>);

}  // namespace zoomr::inline v0

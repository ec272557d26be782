// SPDX-License-Identifier: Apache-2.0
// L4. No details.
#pragma once

#include <zoomr/taking.hpp>

namespace zoomr {
inline namespace v0 {

/// Zooms into nothing: what is attended is the zones, and the summaries if there are any.
struct take_nothing {
  using role = role::selector;
  static constexpr const char* name = "take_nothing";
  ZOOMR_HD constexpr take_limits limits(index) const { return {.segments = 0}; }
  void choose(best_first&, const selection_input&, selection_row&) const {}
  constexpr const char* problem() const { return nullptr; }
  static constexpr void each_field(auto&, auto) {}
  friend constexpr bool operator==(const take_nothing&, const take_nothing&) = default;
};

static_assert(limited_selector<take_nothing>);

}  // namespace v0
}  // namespace zoomr

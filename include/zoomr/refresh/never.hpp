// SPDX-License-Identifier: Apache-2.0
// L4. Never.
#pragma once

#include <zoomr/concepts.hpp>

namespace zoomr {
inline namespace v0 {

/// Keeps the choice that is made at the end of the prompt.
struct never {
  using role = role::refresh;
  static constexpr const char* name = "never";
  static constexpr bool each_token = false;
  static constexpr bool ask_again = false;

  ZOOMR_HD constexpr refresh_action due(const token_event&) const { return refresh_action::keep; }
  ZOOMR_HD constexpr float drift() const { return -2.0f; }
  constexpr const char* problem() const { return nullptr; }
  static constexpr void each_field(auto&, auto) {}
  friend constexpr bool operator==(const never&, const never&) = default;
};

static_assert(refresh_rule<never>);

}  // namespace v0
}  // namespace zoomr

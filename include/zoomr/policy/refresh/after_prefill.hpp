// SPDX-License-Identifier: Apache-2.0
// L4. Never again after the prompt: one choice serves every token that follows, until a rollback into the prompt.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Keeps the choice that is made at the end of the prompt.
struct after_prefill {
  using role = role::refresh;
  static constexpr const char* name = "after_prefill";
  static constexpr bool second_pass = false;

  ZOOMR_HD constexpr refresh_action due(const token_event&) const { return refresh_action::keep; }
  static constexpr bool each_token() { return false; }
  friend constexpr bool operator==(const after_prefill&, const after_prefill&) = default;
};

static_assert(refresh_rule<after_prefill>);

}  // namespace zoomr::inline v0

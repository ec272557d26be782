// SPDX-License-Identifier: Apache-2.0
// L4. Nothing is given up.
#pragma once

#include <zoomr/concepts.hpp>

namespace zoomr {
inline namespace v0 {

/// Keeps each token.
struct keep_everything {
  using role = role::retainer;
  static constexpr const char* name = "keep_everything";
  static constexpr bool observes = false;

  ZOOMR_HD constexpr index kept(index tokens) const { return tokens; }
  constexpr const char* problem() const { return nullptr; }
  static constexpr void each_field(auto&, auto) {}
  friend constexpr bool operator==(const keep_everything&, const keep_everything&) = default;
};

static_assert(retainer<keep_everything>);

}  // namespace v0
}  // namespace zoomr

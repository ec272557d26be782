// SPDX-License-Identifier: Apache-2.0
// L4. The token's own query asks.
#pragma once

#include <zoomr/concepts.hpp>

namespace zoomr {
inline namespace v0 {

/// The query of the token that is being decoded.
struct last_query {
  using role = role::asker;
  static constexpr const char* name = "last_query";
  static constexpr bool sums = false;

  ZOOMR_HD constexpr float ask(float query, float, index) const { return query; }
  constexpr const char* problem() const { return nullptr; }
  static constexpr void each_field(auto&, auto) {}
  friend constexpr bool operator==(const last_query&, const last_query&) = default;
};

static_assert(asker<last_query>);

}  // namespace v0
}  // namespace zoomr

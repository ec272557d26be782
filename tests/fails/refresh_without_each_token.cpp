// SPDX-License-Identifier: Apache-2.0
// expect: compose: a refresh rule needs `refresh_action due(const token_event&) const`, `bool second_pass`
#include <zoomr/policy/compose.hpp>

namespace foreign {

using namespace zoomr;

struct daily {
  using role = role::refresh;
  static constexpr bool second_pass = false;
  constexpr refresh_action due(const token_event&) const { return refresh_action::keep; }
  friend constexpr bool operator==(const daily&, const daily&) = default;
};

constexpr auto mine = compose(daily{});

}  // namespace foreign

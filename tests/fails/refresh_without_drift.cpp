// SPDX-License-Identifier: Apache-2.0
// expect: compose: a refresh rule needs `due(event)`, `ask_again`, `each_token` and `drift()`
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;
using zoomr::index;  // there is one in <strings.h> too

struct daily {
  using role = role::refresh;
  static constexpr bool each_token = false;
  static constexpr bool ask_again = false;
  constexpr refresh_action due(const token_event&) const { return refresh_action::keep; }
  friend constexpr bool operator==(const daily&, const daily&) = default;
};

constexpr auto mine = compose(daily{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: this argument is not a component; it needs `using role = zoomr::role::...`
#include <zoomr/policy/compose.hpp>

namespace foreign {

using namespace zoomr;

struct role_of_mine {};
struct decorator {
  using role = role_of_mine;
  friend constexpr bool operator==(const decorator&, const decorator&) = default;
};

constexpr auto mine = compose(decorator{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: an evictor needs `static constexpr bool observes` and `index_t kept(index_t tokens) const`
#include <zoomr/policy/compose.hpp>

namespace foreign {

using namespace zoomr;

struct forgetful {
  using role = role::evictor;
  static constexpr bool observes = false;
  friend constexpr bool operator==(const forgetful&, const forgetful&) = default;
};

constexpr auto mine = compose(forgetful{});

}  // namespace foreign

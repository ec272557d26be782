// SPDX-License-Identifier: Apache-2.0
// expect: compose: an aggregator needs `scope per`, `static constexpr votes_t least`, `static constexpr bool counts`
#include <zoomr/policy/compose.hpp>

namespace foreign {

using namespace zoomr;

struct silent {
  using role = role::aggregator;
  static constexpr votes_t least = 1;
  static constexpr bool counts = true;
  scope per = scope::sequence;
  friend constexpr bool operator==(const silent&, const silent&) = default;
};

constexpr auto mine = compose(silent{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: a consensus needs `per`, `least`, `counts` and `add(scores, tokens, head_dim, tallies, order)`
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;
using zoomr::index;  // there is one in <strings.h> too

struct silent {
  using role = role::consensus;
  static constexpr tally least = 1;
  static constexpr bool counts = true;
  scope per = scope::sequence;
  friend constexpr bool operator==(const silent&, const silent&) = default;
};

constexpr auto mine = compose(silent{});

}  // namespace foreign

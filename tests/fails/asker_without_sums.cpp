// SPDX-License-Identifier: Apache-2.0
// expect: compose: an asker needs `sums` and `ask(query, sum, count)`
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;
using zoomr::index;  // there is one in <strings.h> too

struct undecided {
  using role = role::asker;
  constexpr float ask(float query, float, index) const { return query; }
  friend constexpr bool operator==(const undecided&, const undecided&) = default;
};

constexpr auto mine = compose(undecided{});

}  // namespace foreign

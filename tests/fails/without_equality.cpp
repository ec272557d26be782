// SPDX-License-Identifier: Apache-2.0
// expect: compose: a component must be a value: default constructible, copyable as bytes, with ==
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;
using zoomr::index;  // there is one in <strings.h> too

struct incomparable {
  using role = role::asker;
  static constexpr bool sums = false;
  constexpr float ask(float query, float, index) const { return query; }
};

constexpr auto mine = compose(incomparable{});

}  // namespace foreign

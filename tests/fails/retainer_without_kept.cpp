// SPDX-License-Identifier: Apache-2.0
// expect: compose: a retainer needs `observes` and `kept(prompt_tokens)`
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;
using zoomr::index;  // there is one in <strings.h> too

struct forgetful {
  using role = role::retainer;
  static constexpr bool observes = false;
  friend constexpr bool operator==(const forgetful&, const forgetful&) = default;
};

constexpr auto mine = compose(forgetful{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: zones were given twice
#include <zoomr/policy/compose.hpp>

namespace foreign {

using namespace zoomr;

constexpr auto mine = compose(zones{.sinks = 4}, zones{.recent = 8});

}  // namespace foreign

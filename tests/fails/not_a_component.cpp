// SPDX-License-Identifier: Apache-2.0
// expect: compose: this argument is not a component; it needs `using role = zoomr::role::...`
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

constexpr auto mine = compose(sentences{}, 1024);

}  // namespace foreign

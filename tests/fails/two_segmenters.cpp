// SPDX-License-Identifier: Apache-2.0
// expect: compose: two segmenters were given
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

constexpr auto mine = compose(sentences{}, key_mean{}, fixed_pages{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: this selector needs a consensus whose tallies add up, like head_mass
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;
using zoomr::index;  // there is one in <strings.h> too

constexpr auto mine = compose(fixed_pages{}, key_mean{}, cover_mass{}, every_token{});

}  // namespace foreign

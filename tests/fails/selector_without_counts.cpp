// SPDX-License-Identifier: Apache-2.0
// expect: compose: this selector needs an aggregator whose votes add up, like head_mass
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

constexpr auto mine = compose(fixed_pages{}, key_mean{}, top_p{}, every_token{});

}  // namespace foreign

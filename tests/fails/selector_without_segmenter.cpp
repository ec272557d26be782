// SPDX-License-Identifier: Apache-2.0
// expect: compose: a selector needs a segmenter: without one there is nothing to choose from
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

constexpr auto mine = compose(key_mean{}, top_k{}, every_token{}, zones{.open = unlimited});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: a selector needs a summarizer: without summaries no segment can be scored
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;
using zoomr::index;  // there is one in <strings.h> too

constexpr auto mine = compose(sentences{}, best_segments{}, every_token{});

}  // namespace foreign

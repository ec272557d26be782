// SPDX-License-Identifier: Apache-2.0
// expect: compose: a selector needs a summarizer: without summaries no segment can be scored
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

constexpr auto mine = compose(sentences{}, top_k{}, every_token{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: a selector needs a summarizer, or a scorer that reads keys
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

constexpr auto mine = compose(sentences{}, top_k{}, every_token{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: a summarizer needs a selector: nothing reads its summaries
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

constexpr auto mine = compose(sentences{}, key_mean{}, mean_dot{}, every_token{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// The control: this compiles with the very command that the others must fail with.
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

constexpr auto mine = compose(sentences{}, key_mean{}, mean_dot{}, top_k{}, every_token{});

}  // namespace foreign

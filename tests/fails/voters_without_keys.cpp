// SPDX-License-Identifier: Apache-2.0
// expect: compose: this aggregator needs a scorer that reads keys, like key_mass
#include <zoomr/policy/aggregate/head_posterior.hpp>
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

constexpr auto mine = compose(sentences{}, key_mean{}, mean_dot{}, head_posterior{}, top_k{}, every_token{});

}  // namespace foreign

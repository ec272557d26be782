// SPDX-License-Identifier: Apache-2.0
// expect: compose: `otherwise` is said of scorer, aggregator and selector
#include <zoomr/policy/score/key_mass.hpp>
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

constexpr auto mine =
    compose(sentences{}, key_box{}, otherwise(key_mass{}, box_bound{}), head_posterior{}, top_p{}, every_token{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: nothing reads the summaries, since the scorer reads keys
#include <zoomr/policy/score/key_mass.hpp>
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

constexpr auto mine = compose(sentences{}, key_mean{}, key_mass{}, head_mass{}, top_k{}, every_token{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: this scorer cannot read the summaries that this summarizer makes
// names: summary::box summary::mean
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

constexpr auto mine = compose(sentences{}, key_mean{}, box_bound{}, top_k{}, every_token{});

}  // namespace foreign

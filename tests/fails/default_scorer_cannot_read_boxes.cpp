// SPDX-License-Identifier: Apache-2.0
// expect: compose: this scorer cannot read the summaries that this summarizer makes
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;
using zoomr::index;  // there is one in <strings.h> too

constexpr auto mine = compose(fixed_pages{}, key_box{}, best_segments{}, every_token{});

}  // namespace foreign

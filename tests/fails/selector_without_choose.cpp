// SPDX-License-Identifier: Apache-2.0
// expect: compose: a selector needs `void choose(best_first&, const selection_input&, selection_row&) const`
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

struct hesitant {
  using role = role::selector;
  friend constexpr bool operator==(const hesitant&, const hesitant&) = default;
};

constexpr auto mine = compose(sentences{}, key_mean{}, hesitant{});

}  // namespace foreign

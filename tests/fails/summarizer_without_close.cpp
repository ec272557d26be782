// SPDX-License-Identifier: Apache-2.0
// expect: compose: a summarizer needs `summary` (a tag with rows), `cells<summary::rows> open() const`, `void
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

struct key_sum {
  using role = role::summarizer;
  using summary = zoomr::summary::mean;
  constexpr cells<1> open() const { return {}; }
  constexpr void fold(cells<1>& sum, float key) const { sum.row[0] += key; }
  friend constexpr bool operator==(const key_sum&, const key_sum&) = default;
};

constexpr auto mine = compose(sentences{}, key_sum{});

}  // namespace foreign

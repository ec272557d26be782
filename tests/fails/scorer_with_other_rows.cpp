// SPDX-License-Identifier: Apache-2.0
// expect: compose: a scorer needs `summary` (the tag of what it reads) and `float term(float acc, float query,
// const cells<summary::rows>&) const`: as many cells as the tag has rows
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

struct of_two_rows {
  using role = role::scorer;
  using summary = zoomr::summary::mean;
  float term(float acc, float query, const cells<2>& c) const { return acc + query * c.row[0]; }
  friend constexpr bool operator==(const of_two_rows&, const of_two_rows&) = default;
};

constexpr auto mine = compose(sentences{}, key_mean{}, of_two_rows{}, top_k{});

}  // namespace foreign

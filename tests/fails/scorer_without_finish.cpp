// SPDX-License-Identifier: Apache-2.0
// expect: compose: a scorer needs `summary` (the tag of what it reads) and `float term(float acc, float query,
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

struct unfinished {
  using role = role::scorer;
  using summary = zoomr::summary::mean;
  static constexpr index_t sums = 2;
  score_sums<2> term(score_sums<2> acc, float, const cells<1>&) const { return acc; }
  friend constexpr bool operator==(const unfinished&, const unfinished&) = default;
};

constexpr auto mine = compose(sentences{}, key_mean{}, unfinished{});

}  // namespace foreign

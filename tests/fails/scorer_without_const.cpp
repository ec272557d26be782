// SPDX-License-Identifier: Apache-2.0
// expect: compose: a member function of this scorer is not const
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

struct changing {
  using role = role::scorer;
  using summary = zoomr::summary::mean;
  float term(float acc, float query, const cells<1>& mean) { return acc + query * mean.row[0]; }
  friend constexpr bool operator==(const changing&, const changing&) = default;
};

constexpr auto mine = compose(sentences{}, key_mean{}, changing{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: a scorer needs `summary` (the tag of what it reads) and `float term(float acc, float query,
// const cells<summary::rows>&) const`
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

struct mute {
  using role = role::scorer;
  using summary = zoomr::summary::mean;
  friend constexpr bool operator==(const mute&, const mute&) = default;
};

constexpr auto mine = compose(sentences{}, key_mean{}, mute{});

}  // namespace foreign

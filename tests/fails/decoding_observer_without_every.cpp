// SPDX-License-Identifier: Apache-2.0
// expect: compose: a retainer that works while decoding needs `every`, a number of tokens
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;
using zoomr::index;  // there is one in <strings.h> too

struct restless {
  using role = role::retainer;
  static constexpr bool observes = true;
  static constexpr bool accumulates = false;
  static constexpr bool reads_keys = false;
  static constexpr bool while_decoding = true;
  constexpr index kept(index tokens) const { return tokens < 100 ? tokens : 100; }
  constexpr index observed(index tokens) const { return tokens < 8 ? tokens : 8; }
  constexpr index safe(index tokens) const { return observed(tokens); }
  void rate(const lane_attention&, view<float>) const {}
  friend constexpr bool operator==(const restless&, const restless&) = default;
};

constexpr auto mine = compose(restless{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: a retainer that observes attention needs `accumulates`, `reads_keys`, `while_decoding`,
// `observed(tokens)`, `safe(tokens)` and `rate(const lane_attention&, view<float>)`
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;
using zoomr::index;  // there is one in <strings.h> too

struct unrated {
  using role = role::retainer;
  static constexpr bool observes = true;
  static constexpr bool accumulates = false;
  static constexpr bool reads_keys = false;
  static constexpr bool while_decoding = false;
  constexpr index kept(index tokens) const { return tokens < 100 ? tokens : 100; }
  constexpr index observed(index tokens) const { return tokens < 8 ? tokens : 8; }
  constexpr index safe(index tokens) const { return observed(tokens); }
  friend constexpr bool operator==(const unrated&, const unrated&) = default;
};

constexpr auto mine = compose(unrated{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: an evictor that works while decoding needs `index_t every`, a number of tokens
#include <zoomr/policy/compose.hpp>

namespace foreign {

using namespace zoomr;

struct restless {
  using role = role::evictor;
  static constexpr bool observes = true;
  static constexpr bool accumulates = false;
  static constexpr bool reads_keys = false;
  static constexpr bool while_decoding = true;
  constexpr index_t kept(index_t tokens) const { return tokens < 100 ? tokens : 100; }
  constexpr index_t observed(index_t tokens) const { return tokens < 8 ? tokens : 8; }
  constexpr index_t safe(index_t tokens) const { return observed(tokens); }
  void rate(const kv_lane_attention&, view<float>) const {}
  friend constexpr bool operator==(const restless&, const restless&) = default;
};

constexpr auto mine = compose(restless{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: an evictor with `update_importance` adds up nothing: accumulates = false
#include <zoomr/policy/compose.hpp>

namespace foreign {

using namespace zoomr;

struct miser {
  using role = role::evictor;
  static constexpr bool observes = true;
  static constexpr bool accumulates = true;
  static constexpr bool reads_keys = true;
  static constexpr bool while_decoding = false;
  constexpr index_t kept(index_t tokens) const { return tokens < 100 ? tokens : 100; }
  constexpr index_t observed(index_t tokens) const { return tokens; }
  constexpr index_t safe(index_t) const { return 8; }
  void rate(const kv_lane_attention&, view<float>) const {}
  void update_importance(const observed_query&, view<float>) const {}
  friend constexpr bool operator==(const miser&, const miser&) = default;
};

constexpr auto mine = compose(miser{});

}  // namespace foreign

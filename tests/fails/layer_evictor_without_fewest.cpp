// SPDX-License-Identifier: Apache-2.0
// expect: compose: an evictor works `per` KV head, sequence, or layer, and then needs `index_t
#include <zoomr/policy/compose.hpp>

namespace foreign {

using namespace zoomr;

struct shared {
  using role = role::evictor;
  static constexpr bool observes = true;
  static constexpr bool accumulates = false;
  static constexpr bool reads_keys = false;
  static constexpr bool while_decoding = false;
  static constexpr scope per = scope::layer;
  constexpr index_t kept(index_t tokens) const { return tokens < 100 ? tokens : 100; }
  constexpr index_t observed(index_t tokens) const { return tokens; }
  constexpr index_t safe(index_t) const { return 8; }
  void rate(const kv_lane_attention&, view<float>) const {}
  friend constexpr bool operator==(const shared&, const shared&) = default;
};

constexpr auto mine = compose(shared{});

}  // namespace foreign

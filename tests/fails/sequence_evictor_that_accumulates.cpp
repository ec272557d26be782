// SPDX-License-Identifier: Apache-2.0
// expect: compose: an evictor that works per layer or sequence does so at the ends of prompts, without keys
#include <zoomr/policy/compose.hpp>

namespace foreign {

using namespace zoomr;

struct endless {
  using role = role::evictor;
  static constexpr bool observes = true;
  static constexpr bool accumulates = true;
  static constexpr bool reads_keys = false;
  static constexpr bool while_decoding = false;
  static constexpr scope per = scope::sequence;
  constexpr index_t kept(index_t tokens) const { return tokens < 100 ? tokens : 100; }
  constexpr index_t observed(index_t tokens) const { return tokens; }
  constexpr index_t safe(index_t) const { return 8; }
  void rate(const kv_lane_attention&, view<float>) const {}
  friend constexpr bool operator==(const endless&, const endless&) = default;
};

constexpr auto mine = compose(endless{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: an evictor that observes attention needs `static constexpr bool accumulates, reads_keys,
#include <zoomr/policy/compose.hpp>

namespace foreign {

using namespace zoomr;

struct unrated {
  using role = role::evictor;
  static constexpr bool observes = true;
  static constexpr bool accumulates = false;
  static constexpr bool reads_keys = false;
  static constexpr bool while_decoding = false;
  constexpr index_t kept(index_t tokens) const { return tokens < 100 ? tokens : 100; }
  constexpr index_t observed(index_t tokens) const { return tokens < 8 ? tokens : 8; }
  constexpr index_t safe(index_t tokens) const { return observed(tokens); }
  friend constexpr bool operator==(const unrated&, const unrated&) = default;
};

constexpr auto mine = compose(unrated{});

}  // namespace foreign

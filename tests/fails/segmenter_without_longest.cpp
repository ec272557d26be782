// SPDX-License-Identifier: Apache-2.0
// expect: compose: a segmenter needs the type `state` (copyable as bytes, with ==), `index_t longest`, `void
#include <zoomr/policy/compose.hpp>

namespace foreign {

using namespace zoomr;

struct pairs {
  using role = role::segmenter;
  struct state {
    index_t begin = 0;
    friend constexpr bool operator==(const state&, const state&) = default;
  };
  constexpr void feed(state&, token_class, index_t, closings&) const {}
  constexpr void end_of_prompt(state&, index_t, closings&) const {}
  constexpr index_t open_begin(const state& open) const { return open.begin; }
  friend constexpr bool operator==(const pairs&, const pairs&) = default;
};

constexpr auto mine = compose(pairs{});

}  // namespace foreign

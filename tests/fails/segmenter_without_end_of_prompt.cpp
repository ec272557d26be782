// SPDX-License-Identifier: Apache-2.0
// expect: compose: a segmenter needs `state`, `longest`, `feed(state&, token_class, position, closings&)`,
// `end_of_prompt(state&, position, closings&)` and `open_begin(state)`, all const
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;
using zoomr::index;  // there is one in <strings.h> too

struct pairs {
  using role = role::segmenter;
  struct state {
    index begin = 0;
    friend constexpr bool operator==(const state&, const state&) = default;
  };
  index longest = 2;
  constexpr void feed(state&, token_class, index, closings&) const {}
  constexpr index open_begin(const state& open) const { return open.begin; }
  friend constexpr bool operator==(const pairs&, const pairs&) = default;
};

constexpr auto mine = compose(pairs{});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: compose: a component must be a value: default constructible, copyable as bytes, with ==
#include <zoomr/policy/compose.hpp>

namespace foreign {

using namespace zoomr;

struct incomparable {
  using role = role::query_source;
  static constexpr bool sums = false;
  constexpr float query(float query, float, index_t) const { return query; }
};

constexpr auto mine = compose(incomparable{});

}  // namespace foreign

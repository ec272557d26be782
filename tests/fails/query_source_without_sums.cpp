// SPDX-License-Identifier: Apache-2.0
// expect: compose: a query source needs `static constexpr bool sums` and `float query(float own, float sum,
#include <zoomr/policy/compose.hpp>

namespace foreign {

using namespace zoomr;

struct undecided {
  using role = role::query_source;
  constexpr float query(float query, float, index_t) const { return query; }
  friend constexpr bool operator==(const undecided&, const undecided&) = default;
};

constexpr auto mine = compose(undecided{});

}  // namespace foreign

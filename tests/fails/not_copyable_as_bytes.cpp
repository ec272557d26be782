// SPDX-License-Identifier: Apache-2.0
// expect: compose: a component must be a value: default constructible, copyable as bytes, with ==
#include <zoomr/policy/compose.hpp>

#include <vector>  // std::vector

namespace foreign {

using namespace zoomr;

struct listed {
  using role = role::query_source;
  static constexpr bool sums = false;
  std::vector<float> weights;
  float query(float query, float, index_t) const { return query; }
  friend bool operator==(const listed&, const listed&) = default;
};

auto mine = compose(listed{});

}  // namespace foreign

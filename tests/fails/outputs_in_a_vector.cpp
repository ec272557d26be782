// SPDX-License-Identifier: Apache-2.0
// expect: attend: queries and outputs are views of three dimensions, as view<const float, 3>(data, {tokens,
#include <zoomr/cache/state/mistaken_arrays.hpp>

#include <vector>

namespace foreign {

using zoomr::view;

// A step has these overloads beside its own.
struct step : private zoomr::detail::mistaken_arrays {
  using zoomr::detail::mistaken_arrays::attend;
  void attend(int, view<const float, 3>, view<float, 3>, view<float, 2> = {}) {}
  void attend(int, view<const zoomr::float16, 3>, view<zoomr::float16, 3>, view<float, 2> = {}) {}
};

void misuse(step& of, view<float, 3> queries, std::vector<float>& out) {
  of.attend(0, queries, queries);  // these compile
  of.attend(0, queries, {out.data(), {1, 2, 64}}, {});
  of.attend(0, {out.data(), {1, 2, 64}}, queries);
  of.attend(0, queries, out);
}

}  // namespace foreign

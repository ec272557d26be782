// SPDX-License-Identifier: Apache-2.0
// expect: attend: queries and outputs are views of three dimensions, as view<const float, 3>(data, {tokens,
#include <zoomr/zoomr.hpp>

#include <vector>

namespace foreign {

using zoomr::view;

void misuse(zoomr::step<float, zoomr::placement>& of, view<float, 3> queries, std::vector<float>& out) {
  of.attend(0, queries, queries);  // these compile
  of.attend(0, queries, {out.data(), {1, 2, 64}}, {});
  of.attend(0, {out.data(), {1, 2, 64}}, queries);
  of.append(0, {out.data(), {1, 2, 64}}, {});
  of.attend(0, queries, out);
}

}  // namespace foreign

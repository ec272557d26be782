// SPDX-License-Identifier: Apache-2.0
// expect: view: numbers are not converted, so an array of double is no view of float
#include <zoomr/core/view.hpp>

namespace foreign {

float floats[2][64];
const zoomr::view<const float, 3> of_floats(&floats[0][0], {1, 2, 64});  // this compiles

double doubles[2][64];
const zoomr::view<const float, 3> other(&doubles[0][0], {1, 2, 64});

}  // namespace foreign

// SPDX-License-Identifier: Apache-2.0
// expect: view: data is the address of the first number: of an array of arrays a, &a[0][0]
#include <zoomr/core/view.hpp>

namespace foreign {

float queries[2][64];
const zoomr::view<const float, 3> of_rows(queries, {1, 2, 64});

}  // namespace foreign

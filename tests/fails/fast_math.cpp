// SPDX-License-Identifier: Apache-2.0
// flags: -ffast-math
// expect: zoomr: sums that the compiler may reorder select other segments
#include <zoomr/policy/compose.hpp>

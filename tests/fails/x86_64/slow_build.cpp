// SPDX-License-Identifier: Apache-2.0
// A build whose host code will be slow says so.
// flags: -march=x86-64 -Werror
// says: zoomr: compiled without AVX2, FMA and F16C
#include <zoomr/zoomr.hpp>

static_assert(zoomr::statistics::cpu_path()[0] == 'p');

// SPDX-License-Identifier: Apache-2.0
// flags: -march=x86-64-v3
// silent
#include <zoomr/zoomr.hpp>

static_assert(zoomr::statistics::cpu_path()[3] == '2');

// SPDX-License-Identifier: Apache-2.0
// flags: -march=x86-64 -DZOOMR_ALLOW_SLOW
// silent
#include <zoomr/zoomr.hpp>

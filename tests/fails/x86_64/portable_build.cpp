// SPDX-License-Identifier: Apache-2.0
// Without flags for the processor nothing is said: what matters for speed is compiled for each path.
// flags: -march=x86-64 -Werror -Wall -Wextra
// silent
#include <zoomr/zoomr.hpp>

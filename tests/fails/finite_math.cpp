// SPDX-License-Identifier: Apache-2.0
// Numbers that are promised to be finite change no selection (finite_math_test): accepted.
// flags: -ffinite-math-only -fno-signed-zeros
#include <zoomr/policy/compose.hpp>

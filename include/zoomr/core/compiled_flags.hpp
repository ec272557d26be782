// SPDX-License-Identifier: Apache-2.0
// L1. What a program and the library zoomr_compiled must be compiled with alike: the linker checks it.
#pragma once

#include <zoomr/core/cpu_path.hpp>

namespace zoomr::inline v0::detail {

/// `library` is defined in zoomr_compiled, for the flags that it was compiled with alone.
template <bool Exceptions, bool Bfloat16Products>
struct compiled_with {
  static const char library;
};

#ifdef ZOOMR_COMPILED
// Undefined where the flags differ: link a zoomr_compiled that was compiled with those of the program.
[[gnu::used]] inline const char* const same_flags =
    &compiled_with<ZOOMR_EXCEPTIONS != 0, ZOOMR_BFLOAT16_PRODUCTS != 0>::library;
#endif

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L0. The only compiler switches of the library: where a function may run, and which checks are on.
#pragma once

#if defined(__CUDACC__)
#define ZOOMR_HD __host__ __device__
#else
#define ZOOMR_HD
#endif

// Checks in inner loops (bounds of views, invariants) are on in debug builds only;
// ZOOMR_EXPECTS in public calls (core/error.hpp) is always on.
#if defined(NDEBUG) && !defined(ZOOMR_CHECK_ALL)
#define ZOOMR_CHECKED 0
#else
#define ZOOMR_CHECKED 1
#endif

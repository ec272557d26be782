// SPDX-License-Identifier: Apache-2.0
// L0. The only compiler switches of the library: where a function may run, which arithmetic it needs, and which checks
// are on.
#pragma once

// The order and the rounding of sums decide what is selected, so nothing may be reordered. Promises about the numbers
// that come (-ffinite-math-only, -fno-signed-zeros) change no selection, as long as they are kept.
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)
#error \
    "zoomr: sums that the compiler may reorder select other segments: compile without -ffast-math, \
-fassociative-math and -freciprocal-math"
#endif

#if defined(__CUDACC__)
#define ZOOMR_HD __host__ __device__
#define ZOOMR_CALLS_EITHER _Pragma("nv_exec_check_disable")
#else
#define ZOOMR_HD
#define ZOOMR_CALLS_EITHER
#endif
// ZOOMR_HD: callable on host and device. ZOOMR_CALLS_EITHER, before a template: what it calls may be host code,
// if it is itself called there.

// Checks in inner loops (bounds of views, invariants) are on in debug builds only;
// ZOOMR_EXPECTS in public calls (core/error.hpp) is always on.
#if defined(NDEBUG) && !defined(ZOOMR_CHECK_ALL)
#define ZOOMR_CHECKED 0
#else
#define ZOOMR_CHECKED 1
#endif

// Exceptions are there; without them (-fno-exceptions) a failure goes to an error handler (core/error.hpp).
#if defined(__cpp_exceptions)
#define ZOOMR_EXCEPTIONS 1
#else
#define ZOOMR_EXCEPTIONS 0
#endif

// The compiler has vector types and shuffles (g++ 12, clang), and this is host code.
#if defined(__GNUC__) && !defined(__CUDACC__)
#define ZOOMR_VECTORS 1
#else
#define ZOOMR_VECTORS 0
#endif

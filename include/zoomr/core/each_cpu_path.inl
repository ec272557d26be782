// SPDX-License-Identifier: Apache-2.0
// Includes ZOOMR_EACH_CPU_PATH, a file without includes of its own, once for each path that is written in vectors.
// There ZOOMR_PATH is the path's name, ZOOMR_SIMD how many floats a vector has, and ZOOMR_PAIRS whether there are
// products of pairs of bfloat16. The path with such products comes after avx512, whose functions it may use for all
// else. Lambdas would not be compiled for the path: there are none in such files.
#if ZOOMR_AVX

ZOOMR_BEGIN_TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#define ZOOMR_PATH avx512
#define ZOOMR_SIMD 16
#define ZOOMR_PAIRS 0
#include ZOOMR_EACH_CPU_PATH
#undef ZOOMR_PATH
#undef ZOOMR_SIMD
#undef ZOOMR_PAIRS
ZOOMR_END_TARGET

#if ZOOMR_BFLOAT16_PRODUCTS
ZOOMR_BEGIN_TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
#define ZOOMR_PATH avx512_bf16
#define ZOOMR_SIMD 16
#define ZOOMR_PAIRS 1
#include ZOOMR_EACH_CPU_PATH
#undef ZOOMR_PATH
#undef ZOOMR_SIMD
#undef ZOOMR_PAIRS
ZOOMR_END_TARGET
#endif

#if ZOOMR_AVX2
ZOOMR_BEGIN_TARGET("avx2,fma,f16c")
#define ZOOMR_PATH avx2
#define ZOOMR_SIMD 8
#define ZOOMR_PAIRS 0
#include ZOOMR_EACH_CPU_PATH
#undef ZOOMR_PATH
#undef ZOOMR_SIMD
#undef ZOOMR_PAIRS
ZOOMR_END_TARGET
#endif

#elif ZOOMR_NEON

#define ZOOMR_PATH neon
#define ZOOMR_SIMD 4
#define ZOOMR_PAIRS 0
#include ZOOMR_EACH_CPU_PATH
#undef ZOOMR_PATH
#undef ZOOMR_SIMD
#undef ZOOMR_PAIRS

#endif
#undef ZOOMR_EACH_CPU_PATH

// SPDX-License-Identifier: Apache-2.0
// L1. Which instructions host code uses. On x86-64, g++ and clang compile what matters for speed several times, and the
// machine that it runs on decides: so a build without -march is as fast as one with it. Every aarch64 has NEON, and
// nothing is left to decide. All paths have the same bits, but for outputs of attention over bfloat16 on one of them.
//
// Two ways lead there. Kernels that are written in vectors are included once for each path (core/each_cpu_path.inl),
// and called by `dispatch`. Code that is not, such as components of policies, is handed to `on_fastest_path` as a
// callable.
#pragma once

#include <zoomr/core/types.hpp>

#include <type_traits>  // std::is_same_v

namespace zoomr::inline v0 {

/// Instruction sets: the portable one, those of x86-64 with the older first, that of aarch64.
enum class cpu_path : std::uint8_t {
  portable,  // what the compiler's options allow
  avx2,      // with FMA and F16C
  avx512,    // F, BW, DQ and VL, with what avx2 has
  /// And products of pairs of bfloat16: attention multiplies such values two tokens at a time, by weights that are
  /// rounded to bfloat16. An output is off by up to 2^-8 of the largest value; weights are added up unrounded. Queries
  /// that are numbers of bfloat16 are multiplied with such keys two dimensions at a time; no other query is rounded.
  avx512_bf16,
  neon  // 32 registers of four floats, with conversions of float16
};

constexpr const char* name_of(cpu_path path) {
  return path == cpu_path::avx512_bf16 ? "avx512_bf16"
         : path == cpu_path::avx512    ? "avx512"
         : path == cpu_path::avx2      ? "avx2"
         : path == cpu_path::neon      ? "neon"
                                       : "portable";
}

// Defined as 0, in every source alike, outputs over bfloat16 have the same bits on every machine.
#ifndef ZOOMR_BFLOAT16_PRODUCTS
#define ZOOMR_BFLOAT16_PRODUCTS 1
#endif

// ZOOMR_AVX, ZOOMR_NEON: which kernels in vectors are compiled; at most one is 1.
#if ZOOMR_VECTORS && defined(__x86_64__)
#define ZOOMR_AVX 1
#define ZOOMR_NEON 0
#elif ZOOMR_VECTORS && defined(__AARCH64EL__) && defined(__ARM_NEON)
#define ZOOMR_AVX 0
#define ZOOMR_NEON 1
#else
#define ZOOMR_AVX 0
#define ZOOMR_NEON 0
#endif

// What the compiler may use everywhere needs no other path: a build for processors with AVX-512 leaves out AVX2's,
// unless ZOOMR_EVERY_PATH is defined as 1, in every source alike.
#ifndef ZOOMR_EVERY_PATH
#define ZOOMR_EVERY_PATH 0
#endif
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define ZOOMR_AVX2_EVERYWHERE 1
#else
#define ZOOMR_AVX2_EVERYWHERE 0
#endif
#if ZOOMR_AVX2_EVERYWHERE && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__)
#define ZOOMR_AVX512_EVERYWHERE 1
#else
#define ZOOMR_AVX512_EVERYWHERE 0
#endif
#if ZOOMR_AVX && (ZOOMR_EVERY_PATH || !ZOOMR_AVX512_EVERYWHERE)
#define ZOOMR_AVX2 1
#else
#define ZOOMR_AVX2 0
#endif

// ZOOMR_BEGIN_TARGET(instructions): what follows is compiled for them, too, until ZOOMR_END_TARGET.
#define ZOOMR_PRAGMA(...) ZOOMR_PRAGMA_TEXT(__VA_ARGS__)
#define ZOOMR_PRAGMA_TEXT(...) _Pragma(#__VA_ARGS__)
#if defined(__clang__)
#define ZOOMR_BEGIN_TARGET(list) ZOOMR_PRAGMA(clang attribute push(__attribute__((target(list))), apply_to = function))
#define ZOOMR_END_TARGET ZOOMR_PRAGMA(clang attribute pop)
#else
#define ZOOMR_BEGIN_TARGET(list) ZOOMR_PRAGMA(GCC push_options) ZOOMR_PRAGMA(GCC target(list))
#define ZOOMR_END_TARGET ZOOMR_PRAGMA(GCC pop_options)
#endif

/// True if this machine has the instructions of `path`, and the library was compiled for it.
inline bool has_cpu_path(cpu_path path) {
#if ZOOMR_AVX
  // Whatever has AVX2 has F16C, for which clang has no test.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (path == cpu_path::avx512_bf16) return avx512 && ZOOMR_BFLOAT16_PRODUCTS && __builtin_cpu_supports("avx512bf16");
  return path == cpu_path::portable || (path == cpu_path::avx2 && avx2 && ZOOMR_AVX2) ||
         (path == cpu_path::avx512 && avx512);
#else
  return path == cpu_path::portable || (path == cpu_path::neon && ZOOMR_NEON);
#endif
}

/// The fastest path that this machine has. Pairs of bfloat16 are multiplied on AMD's processors alone: Intel's begin
/// one such instruction in a cycle, but two fused multiply-adds of floats (docs/results/cpu.md).
inline cpu_path fastest_cpu_path() {
  static const cpu_path fastest = [] {
#if ZOOMR_AVX
    if (has_cpu_path(cpu_path::avx512_bf16) && __builtin_cpu_is("amd")) return cpu_path::avx512_bf16;
#endif
    for (const cpu_path path : {cpu_path::avx512, cpu_path::avx2, cpu_path::neon}) {
      if (has_cpu_path(path)) return path;
    }
    return cpu_path::portable;
  }();
  return fastest;
}

}  // namespace zoomr::inline v0

#define ZOOMR_EACH_CPU_PATH <zoomr/core/cpu_path.inl>
#include <zoomr/core/each_cpu_path.inl>

namespace zoomr::inline v0::detail {

template <class... Paths>
struct path_list {};

// The paths in vectors; those with instructions that other code is not compiled for; that of them which most machines
// have; and those with products of pairs.
#if ZOOMR_AVX2
using vector_paths = path_list<avx512::this_path, avx2::this_path>;
#elif ZOOMR_AVX
using vector_paths = path_list<avx512::this_path>;
#elif ZOOMR_NEON
using vector_paths = path_list<neon::this_path>;
#else
using vector_paths = path_list<>;
#endif
#if !ZOOMR_AVX || ZOOMR_AVX512_EVERYWHERE
using target_paths = path_list<>;
#elif ZOOMR_AVX2_EVERYWHERE
using target_paths = path_list<avx512::this_path>;
#else
using target_paths = path_list<avx512::this_path, avx2::this_path>;
#endif
#if !ZOOMR_AVX || ZOOMR_AVX2_EVERYWHERE
using common_paths = path_list<>;
#else
using common_paths = path_list<avx2::this_path>;
#endif
#if ZOOMR_AVX && ZOOMR_BFLOAT16_PRODUCTS
using pair_paths = path_list<avx512_bf16::this_path>;
#else
using pair_paths = path_list<>;
#endif

template <class Call, class... Paths>
[[gnu::always_inline]] inline bool dispatch_one([[maybe_unused]] cpu_path path, [[maybe_unused]] const Call& call,
                                                path_list<Paths...>) {
  return ((path == Paths::value && (call(Paths{}), true)) || ...);
}

/// The path whose vectors `path` uses where it multiplies no pairs.
constexpr cpu_path vectors_under(cpu_path path) { return path == cpu_path::avx512_bf16 ? cpu_path::avx512 : path; }

/// The one dispatcher of kernels in vectors: `call(this_path{})` for that of `path`. A kernel takes this as its first
/// argument, by which the right one is found.
/// @return  false if `path` has no vectors; then nothing is called
template <class Call>
[[gnu::always_inline]] inline bool dispatch(cpu_path path, Call call) {
  return dispatch_one(vectors_under(path), call, vector_paths{});
}
/// The same for kernels that multiply pairs of bfloat16; false where `path` has no such products.
template <class Call>
[[gnu::always_inline]] inline bool dispatch_pairs(cpu_path path, Call call) {
  return dispatch_one(path, call, pair_paths{});
}

/// Calls `work()`, compiled together with all that it calls.
template <class Work>
[[gnu::flatten]] void compiled(path_list<>, Work& work) {
  work();
}

/// Calls `work()`, compiled for `path` together with all that it calls, as far as this is inline.
/// @pre has_cpu_path(path)
template <class Work, class Targets = target_paths>
[[gnu::always_inline]] inline void on_path(cpu_path path, Work work, Targets targets = {}) {
  if constexpr (std::is_same_v<Targets, path_list<>>) {
    compiled(targets, work);
  } else if (!dispatch_one(
                 vectors_under(path), [&](auto vectors) { compiled(vectors, work); }, targets)) {
    work();
  }
}
/// The same for what runs seldom or briefly, such as the last numbers of a row: AVX2 is enough.
template <class Work>
[[gnu::always_inline]] inline void on_common_path(cpu_path path, Work work) {
  on_path(vectors_under(path) == cpu_path::avx512 ? cpu_path::avx2 : path, work, common_paths{});
}
template <class Work>
void on_fastest_path(Work work) {
  on_path(fastest_cpu_path(), work);
}

}  // namespace zoomr::inline v0::detail

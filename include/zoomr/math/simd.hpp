// SPDX-License-Identifier: Apache-2.0
// L2. Vectors of floats for the host's kernels, one kind for each path (core/cpu_path.hpp). GNU's vector types, since
// <immintrin.h> takes a third of the time that all of zoomr takes to include, <arm_neon.h> a sixth.
#pragma once

#include <zoomr/core/block_rows.hpp>
#include <zoomr/core/cpu_path.hpp>

namespace zoomr::inline v0::detail {

/// Kernels in vectors take rows of a multiple of so many numbers: half of the 32 partial sums (math/dot.hpp).
inline constexpr index_t simd_dims = 16;

/// The scale of a block of each byte, where it is one.
template <class T>
struct scales_of_bytes {
  float at[256] = {};

  constexpr scales_of_bytes() {
    for (std::uint32_t x = 0; x < 256; ++x) at[x] = storage_traits<T>::scale({static_cast<std::uint8_t>(x)});
  }
};
template <class T>
inline constexpr scales_of_bytes<T> byte_scales;

}  // namespace zoomr::inline v0::detail

#define ZOOMR_EACH_CPU_PATH <zoomr/math/simd.inl>
#include <zoomr/core/each_cpu_path.inl>

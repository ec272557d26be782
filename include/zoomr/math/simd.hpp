// SPDX-License-Identifier: Apache-2.0
// L2. Vectors of floats for the host's kernels, one kind for each path (core/cpu_path.hpp). GNU's vector types, since
// <immintrin.h> takes a third of the time that all of zoomr takes to include, <arm_neon.h> a sixth.
#pragma once

#include <zoomr/core/block_rows.hpp>
#include <zoomr/core/cpu_path.hpp>

namespace zoomr::inline v0::detail {

/// Kernels in vectors take rows of a multiple of so many numbers: half of the 32 partial sums (math/dot.hpp).
inline constexpr index_t simd_dims = 16;

/// The scale of mxfp8 of each byte.
struct byte_scales {
  float at[256] = {};

  constexpr byte_scales() {
    for (std::uint32_t x = 0; x < 256; ++x) at[x] = block_codec<mxfp8>::scale({static_cast<std::uint8_t>(x)});
  }
};
inline constexpr byte_scales mxfp8_scales;

}  // namespace zoomr::inline v0::detail

#define ZOOMR_EACH_CPU_PATH <zoomr/math/simd.inl>
#include <zoomr/core/each_cpu_path.inl>

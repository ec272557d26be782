// SPDX-License-Identifier: Apache-2.0
// L2. exp, log, tanh and fused multiply-add with the same bits on every host and device: what selections depend on
// must not depend on whose mathematics library was linked. Every product that feeds a sum is an explicit fma,
// so that no compiler's choice of contraction can change a result.
#pragma once

#include <zoomr/core/types.hpp>

#include <cmath>  // std::fma, std::sqrt

namespace zoomr::inline v0 {

/// a * b + c, rounded once. Without fma instructions it is slow, not different (`statistics::cpu_path`).
ZOOMR_HD inline float fused(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

/// a / b, rounded once, whatever the compiler's options for divisions.
ZOOMR_HD constexpr float quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

/// The square root of x, rounded once.
ZOOMR_HD inline float square_root(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}

/// e^x for x <= 0 (larger x up to 88 is fine too).
/// @return relative error below 1e-7; 0 below -87 (also for -inf); NaN for NaN
/// @cost   8 fma, no table
ZOOMR_HD inline float exponential(float x) {
  if (!(x >= -87.0f)) return is_nan(x) ? x : 0.0f;
  // x = n ln 2 + r, |r| <= ln 2 / 2: adding 1.5 * 2^23 rounds to the nearest integer
  const float magic = 12582912.0f;
  const float n = fused(x, 1.44269504f, magic) - magic;
  float r = fused(n, -0.693359375f, x);
  r = fused(n, 2.12194440e-4f, r);
  float p = 1.9875691e-4f;
  p = fused(p, r, 1.3981999e-3f);
  p = fused(p, r, 8.3334519e-3f);
  p = fused(p, r, 4.1665796e-2f);
  p = fused(p, r, 1.6666665e-1f);
  p = fused(p, r, 5.0000001e-1f);
  p = fused(fused(p, r, 1.0f), r, 1.0f);
  const auto bits = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23;
  return p * bits_as<float>(bits);
}

/// ln x for positive, finite, normal x.
/// @return relative error below 2e-7, exact at 1; -inf for 0, NaN below
/// @cost   8 fma and a division
ZOOMR_HD inline float logarithm(float x) {
  if (!(x > 0.0f)) return x == 0.0f ? -infinity : not_a_number;
  // x = 2^e m, m in [sqrt(1/2), sqrt(2)); ln m = 2 atanh(s), s = (m - 1) / (m + 1)
  auto bits = bits_as<std::uint32_t>(x);
  auto exponent = static_cast<std::int32_t>(bits >> 23) - 127;
  bits = (bits & 0x007fffffu) | 0x3f800000u;
  float m = bits_as<float>(bits);
  if (m > 1.41421356f) {
    m *= 0.5f;
    ++exponent;
  }
  const float s = quotient(m - 1.0f, m + 1.0f);
  const float z = s * s;
  float p = 2.2222222e-1f;
  p = fused(p, z, 2.8571429e-1f);
  p = fused(p, z, 4.0e-1f);
  p = fused(p, z, 6.6666667e-1f);
  const float tail = fused(s * z, p, 2.0f * s);
  return fused(static_cast<float>(exponent), 0.693147181f, tail);
}

/// tanh x.
/// @return relative error below 3e-7; 1 from 10 on (also for inf), odd; NaN for NaN
/// @cost   an exponential, 5 fma and a division
ZOOMR_HD inline float hyperbolic_tangent(float x) {
  const float size = x < 0.0f ? -x : x;
  if (size < 0.625f) {  // x + x^3 p(x^2), where 1 - e^-2x would cancel
    const float z = x * x;
    float p = -5.70498872745e-3f;
    p = fused(p, z, 2.06390887954e-2f);
    p = fused(p, z, -5.37397155531e-2f);
    p = fused(p, z, 1.33314422036e-1f);
    p = fused(p, z, -3.33332819422e-1f);
    return fused(x * z, p, x);
  }
  const float e = exponential(-2.0f * size);
  const float tangent = quotient(1.0f - e, 1.0f + e);
  return x < 0.0f ? -tangent : tangent;
}

}  // namespace zoomr::inline v0

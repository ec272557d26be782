// SPDX-License-Identifier: Apache-2.0
// The only tolerances of the tests: a few named families, each with its reason.
#pragma once

#include <cmath>  // std::abs, std::isnan

namespace zoomr_test::tolerance {

/// Unit roundoff of float: a result rounded once is off by at most this share of itself.
inline constexpr double unit = 1.0 / 16777216.0;  // 2^-24

/// Integers, positions, and sums whose every partial sum is a float: no difference at all.
inline constexpr double exact = 0.0;

/// One function of one number: the value is rounded a handful of times (polynomials of 8 fma).
inline constexpr double elementwise = 8 * unit;

/// A sum of n products, relative to the sum of their magnitudes: each partial sum is rounded once, so n units bound
/// it in any order; and the numbers summed may themselves be rounded results.
constexpr double reduction(double n) { return (n + 8) * unit; }

/// An attention output or log-sum-exp. A logit of n products with magnitudes summing up to `logit` is off by at most
/// reduction(n) * logit, which multiplies its weight by e to that power; the weights are then summed over `tokens`.
/// The factor 2 is for numerator and denominator; outputs are relative to the largest |value|.
constexpr double end_to_end(double n, double logit, double tokens) {
  return 2 * (reduction(n) * logit + reduction(tokens));
}

/// A number rounded to a mantissa of so many bits: half of its last place, as a share of itself.
constexpr double rounded(int mantissa) { return 0.5 / static_cast<double>(1 << mantissa); }

/// An attention output whose weights are rounded to 16 bits before they meet values: each weight by its share, and in a
/// float16 (10 bits of mantissa) those below 2^-14 by up to 2^-25 of the largest. Outputs are relative to the largest
/// |value|. A log-sum-exp has none of it: the weights are added up unrounded.
constexpr double rounded_weights(int mantissa, double tokens) {
  return rounded(mantissa) + (mantissa == 10 ? tokens * 0x1p-25 : 0.0);
}

/// "Equal to full attention": the sets are the same and only the order of summation differs.
inline constexpr double full_attention = 1e-5;

/// A mass of one head, in its units of 2^-24: rounding to a unit, and a softmax off by a few units in 2^24.
constexpr double mass(double n, double logit) { return 1 + 16777216.0 * 4 * (reduction(n) * logit + 8 * unit); }

/// True if both are NaN or differ by at most `allowed`.
inline bool within(double a, double b, double allowed) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(a - b) <= allowed;
}

}  // namespace zoomr_test::tolerance

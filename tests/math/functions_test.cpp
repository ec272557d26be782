// SPDX-License-Identifier: Apache-2.0
// The bounds checked here are those of the doc comments; the reference is the standard library in double.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/math/functions.hpp>

#include <bit>
#include <cmath>  // std::exp, std::log, std::tanh

namespace zoomr {

namespace {

float at(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// body(x) for about one in `stride` floats of [first, last], both positive, and for both ends.
template <class Body>
void sweep(float first, float last, std::uint32_t stride, Body body) {
  const auto end = std::bit_cast<std::uint32_t>(last);
  for (auto bits = std::bit_cast<std::uint32_t>(first); bits < end; bits += stride) body(at(bits));
  body(last);
}

double relative_error(double value, double exact) { return std::fabs(value - exact) / std::fabs(exact); }

}  // namespace

TEST_CASE("exponential has a relative error below 1e-7 from -87 to 88") {
  double worst = 0.0;
  const auto measure = [&](float x) {
    worst = std::fmax(worst, relative_error(exponential(x), std::exp(static_cast<double>(x))));
  };
  sweep(1e-30f, 87.0f, 499, [&](float x) { measure(-x); });
  sweep(1e-30f, 88.0f, 499, measure);
  // the halves of ln 2, where the reduction changes its integer
  for (int n = -125; n <= 126; ++n) {
    const float edge = static_cast<float>((n + 0.5) * 0.69314718055994531);
    for (const float x : {std::nextafter(edge, -infinity), edge, std::nextafter(edge, infinity)}) measure(x);
  }
  CAPTURE(worst);
  CHECK(worst < 1e-7);
}

TEST_CASE("exponential is exact at 0, 0 below -87, and NaN for NaN") {
  CHECK(exponential(0.0f) == 1.0f);
  CHECK(exponential(-0.0f) == 1.0f);
  CHECK(exponential(-87.0f) > 0.0f);
  CHECK(exponential(std::nextafter(-87.0f, -infinity)) == 0.0f);
  CHECK(exponential(-1e30f) == 0.0f);
  CHECK(exponential(-infinity) == 0.0f);
  CHECK(std::isnan(exponential(not_a_number)));
  CHECK(std::isnan(exponential(-not_a_number)));
}

TEST_CASE("logarithm has a relative error below 2e-7 over all normal floats") {
  double worst = 0.0;
  const auto measure = [&](float x) {
    if (x != 1.0f) {
      worst = std::fmax(worst, relative_error(logarithm(x), std::log(static_cast<double>(x))));
    }
  };
  sweep(std::numeric_limits<float>::min(), std::numeric_limits<float>::max(), 997, measure);
  sweep(0.5f, 2.0f, 7, measure);
  sweep(0.9999f, 1.0001f, 1, measure);  // where the logarithm itself is small
  for (int e = -120; e <= 120; ++e) {
    const float edge = static_cast<float>(std::ldexp(1.41421356237309505, e));
    for (const float x : {std::nextafter(edge, 0.0f), edge, std::nextafter(edge, infinity)}) measure(x);
  }
  CAPTURE(worst);
  CHECK(worst < 2e-7);
}

TEST_CASE("logarithm is exact at 1, -inf at 0, and NaN below") {
  CHECK(logarithm(1.0f) == 0.0f);
  CHECK(logarithm(0.0f) == -infinity);
  CHECK(logarithm(-0.0f) == -infinity);
  CHECK(std::isnan(logarithm(-1.0f)));
  CHECK(std::isnan(logarithm(-infinity)));
  CHECK(std::isnan(logarithm(not_a_number)));
}

TEST_CASE("logarithm of a count of tokens grows with the count") {
  for (index_t tokens = 1; tokens < 100000; ++tokens) {
    REQUIRE(logarithm(static_cast<float>(tokens)) < logarithm(static_cast<float>(tokens + 1)));
  }
}

TEST_CASE("hyperbolic_tangent has a relative error below 3e-7 over all normal floats, and is odd") {
  double worst = 0.0;
  const auto measure = [&](float x) {
    const float made = hyperbolic_tangent(x);
    worst = std::fmax(worst, relative_error(made, std::tanh(static_cast<double>(x))));
    REQUIRE(hyperbolic_tangent(-x) == -made);
    REQUIRE(made <= 1.0f);
  };
  sweep(std::numeric_limits<float>::min(), std::numeric_limits<float>::max(), 997, measure);
  sweep(0.01f, 12.0f, 7, measure);
  sweep(0.62f, 0.63f, 1, measure);  // where the formula changes
  CAPTURE(worst);
  CHECK(worst < 3e-7);
}

TEST_CASE("hyperbolic_tangent never falls where the formula changes, ends at 1, and is NaN for NaN") {
  const float below = std::nextafter(0.625f, 0.0f);
  CHECK(hyperbolic_tangent(below) <= hyperbolic_tangent(0.625f));
  CHECK(hyperbolic_tangent(0.0f) == 0.0f);
  CHECK(hyperbolic_tangent(1e-40f) == 1e-40f);
  CHECK(hyperbolic_tangent(10.0f) == 1.0f);
  CHECK(hyperbolic_tangent(infinity) == 1.0f);
  CHECK(hyperbolic_tangent(-infinity) == -1.0f);
  CHECK(std::isnan(hyperbolic_tangent(not_a_number)));
  CHECK(std::isnan(hyperbolic_tangent(-not_a_number)));
}

TEST_CASE("fused rounds once") {
  // (1 + e)(1 - e) = 1 - e^2, which is 1 when the product is rounded first
  const float e = 0x1p-23f;
  CHECK(fused(1.0f + e, 1.0f - e, -1.0f) == -e * e);
  unit::random random(2);
  for (int i = 0; i < 10000; ++i) {
    const float a = random.uniform(-1.0f, 1.0f);
    const float b = random.uniform(-1.0f, 1.0f);
    const float c = random.uniform(-1.0f, 1.0f);
    REQUIRE(fused(a, b, c) == std::fma(a, b, c));
  }
}

}  // namespace zoomr

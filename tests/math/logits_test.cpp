// SPDX-License-Identifier: Apache-2.0
// Scores to logits, and soft caps, against the standard library in double.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/math/logits.hpp>

#include <cmath>  // std::abs, std::sqrt, std::tanh

namespace zoomr {

TEST_CASE("soft_capped is cap * tanh(logit / cap), whether caps are tiny or huge") {
  unit::random random(60);
  for (const float cap : {1e-30f, 0.01f, 1.0f, 30.0f, 50.0f, 1e6f, 1e30f, 3e38f}) {
    for (int i = 0; i < 2000; ++i) {
      const float logit = random.uniform(-3.0f, 3.0f) * (i % 2 == 0 ? cap < 1e30f ? cap : 1e30f : 20.0f);
      const double right = double{cap} * std::tanh(double{logit} / double{cap});
      const double made = soft_capped(logit, cap);
      CAPTURE(cap);
      CAPTURE(logit);
      REQUIRE(std::abs(made - right) <= 4e-7 * std::abs(right) + 0x1p-149 * double{cap});
      REQUIRE(std::abs(made) <= double{cap});
    }
    CHECK(soft_capped(infinity, cap) == cap);
    CHECK(soft_capped(-infinity, cap) == -cap);
    CHECK(soft_capped(0.0f, cap) == 0.0f);
    CHECK(std::isnan(soft_capped(not_a_number, cap)));
  }
}

TEST_CASE("scores become logits by the usual scale, one of the model's own, and a cap") {
  const score_logits usual = 64;
  CHECK(usual(16.0f, 0.0f) == 2.0f);
  CHECK(usual(16.0f, 3.0f) == 5.0f);
  CHECK(index_t{usual} == 64);
  score_logits own = usual;
  own.scale = 0.5f;
  CHECK(own(16.0f, 1.0f) == 9.0f);
  own.soft_cap = 4.0f;
  CHECK(own != usual);
  CHECK(std::abs(double{own(16.0f, 1.0f)} - (4.0 * std::tanh(2.0) + 1.0)) < 1e-6);
  CHECK(std::abs(double{own(-3.0f, 0.0f)} - 4.0 * std::tanh(-0.375)) < 1e-6);
  CHECK(std::isnan(own(not_a_number, 0.0f)));
  CHECK(own(infinity, 1.0f) == 5.0f);
}

}  // namespace zoomr

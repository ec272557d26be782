// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/math/softmax.hpp>

#include <cmath>   // std::exp
#include <vector>  // std::vector

namespace zoomr {

TEST_CASE("a softmax shares 1 out as the double one does") {
  unit::random random(53);
  for (int round = 0; round < 100; ++round) {
    const auto logits = random.floats(unit::size(random.between(1, 60)), -30.0f, 30.0f);
    const auto n = static_cast<index_t>(logits.size());
    const softmax made(n, [&](index_t i) { return logits[unit::size(i)]; });
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    for (index_t i = 0; i < n; ++i) {
      const double exact = std::exp(static_cast<double>(logits[unit::size(i)])) / sum;
      REQUIRE(std::fabs(static_cast<double>(made.share(i)) - exact) <= 4e-6 * exact + 1e-38);
    }
  }
}

TEST_CASE("NaN takes no part in a softmax, and infinities share what there is") {
  const float logits[] = {not_a_number, infinity, 1.0f, infinity, -infinity};
  const softmax made(5, [&](index_t i) { return logits[i]; });
  CHECK(made.sum() == 2.0f);
  CHECK(made.share(0) == 0.0f);
  CHECK(made.share(1) == 0.5f);
  CHECK(made.share(2) == 0.0f);
  CHECK(made.share(4) == 0.0f);
  CHECK(softmax(0, [](index_t) { return 0.0f; }).sum() == 0.0f);
  CHECK(softmax(3, [](index_t) { return not_a_number; }).sum() == 0.0f);
  CHECK(softmax(2, [](index_t) { return -infinity; }).share(1) == 0.5f);
}

}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/math/softmax.hpp>

#include <cmath>   // std::exp, std::fabs, std::log
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
    REQUIRE(std::fabs(static_cast<double>(made.log_sum()) - std::log(sum)) <= 4e-6);  // of at most 35
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
  CHECK(made.log_sum() == infinity);
  CHECK(softmax(2, [](index_t) { return -infinity; }).log_sum() == -infinity);
  CHECK(softmax(3, [](index_t) { return not_a_number; }).log_sum() == -infinity);
}

TEST_CASE("each row has its own softmax, and one of which nothing takes part is left out") {
  const float rows[3][2] = {{1.0f, 3.0f}, {not_a_number, not_a_number}, {-infinity, 2.0f}};
  float shares[3][2] = {{-1.0f, -1.0f}, {-1.0f, -1.0f}, {-1.0f, -1.0f}};
  single_worker alone;
  each_softmax(
      alone, 3, 2, [&](index_t row, index_t i) { return rows[row][i]; },
      [&](index_t row, index_t i, const auto& of_row) { shares[row][i] = of_row.share(i); });
  for (const index_t row : {0, 2}) {
    const softmax expected(2, [&](index_t i) { return rows[row][i]; });
    for (index_t i = 0; i < 2; ++i) CHECK(shares[row][i] == expected.share(i));
  }
  CHECK(shares[1][0] == -1.0f);
  CHECK(shares[1][1] == -1.0f);
}

}  // namespace zoomr

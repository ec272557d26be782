// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <policy/aggregate/scores.hpp>
#include <zoomr/policy/aggregate/pooled_score.hpp>

#include <cmath>  // std::fmax

namespace zoomr::pooled_score_test {
using unit::agreed;
using unit::table;
using unit::votes;

namespace {

constexpr pooled_score mean{};
constexpr pooled_score largest{.over_group = pool::max};

}  // namespace

TEST_CASE("scores are averaged in ascending order of heads, bit for bit") {
  unit::random random(33);
  for (int round = 0; round < 200; ++round) {
    const auto scores = unit::random_table(random, random.between(1, 8), random.below(30), true);
    votes expected = scores.before;
    for (index_t id = 0; id < scores.segments; ++id) {
      if (!scores.eligible(id)) continue;
      float sum = scores.at(0, id);
      for (index_t head = 1; head < scores.heads; ++head) sum += scores.at(head, id);
      expected[unit::size(id)] = order_key(sum / static_cast<float>(scores.heads));
    }
    REQUIRE(agreed(mean, scores) == expected);
  }
}

TEST_CASE("the maximum is that of all heads, and NaN if one of them is") {
  unit::random random(34);
  for (int round = 0; round < 200; ++round) {
    const auto scores = unit::random_table(random, random.between(1, 8), random.below(30), true);
    votes expected = scores.before;
    for (index_t id = 0; id < scores.segments; ++id) {
      if (!scores.eligible(id)) continue;
      float most = -infinity;
      bool bad = false;
      for (index_t head = 0; head < scores.heads; ++head) {
        bad = bad || is_nan(scores.at(head, id));
        most = std::fmax(most, scores.at(head, id));
      }
      expected[unit::size(id)] = order_key(bad ? not_a_number : most);
    }
    REQUIRE(agreed(largest, scores) == expected);
  }
}

TEST_CASE("with one head, its score is the votes") {
  const auto scores = table(1, {1.5f, -0.0f, not_a_number, -infinity});
  const votes expected{order_key(1.5f), order_key(0.0f), order_key(not_a_number), order_key(-infinity)};
  CHECK(agreed(mean, scores) == expected);
  CHECK(agreed(largest, scores) == expected);
}

TEST_CASE("opposite infinities have no mean, and rank last; any score will do") {
  const votes pooled = agreed(mean, table(2, {infinity, 1.0f, -infinity, 1.0f}));
  CHECK(pooled[0] == order_key(not_a_number));
  CHECK(pooled[0] >= pooled_score::least);
  CHECK(not_eligible < pooled_score::least);
}

TEST_CASE("scores of different layers cannot be pooled") {
  CHECK(pooled_score{}.problem() == nullptr);
  CHECK(pooled_score{.per = scope::layer}.problem() == nullptr);
  CHECK(pooled_score{.per = scope::sequence}.problem() != nullptr);
}

}  // namespace zoomr::pooled_score_test

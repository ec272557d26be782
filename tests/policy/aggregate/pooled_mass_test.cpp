// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <policy/aggregate/scores.hpp>
#include <zoomr/policy/aggregate/pooled_mass.hpp>

#include <algorithm>  // std::max

namespace zoomr::pooled_mass_test {
using unit::agreed;
using unit::table;
using unit::votes;

namespace {

constexpr double one = 1099511627776.0;  // a mass of 1: 2^40
constexpr pooled_mass largest{};
constexpr pooled_mass mean{.over_group = pool::mean};

/// The softmax of one head in double, in units, over what is eligible.
std::vector<double> softmax_of(const unit::score_table& of, index_t head) {
  std::vector<double> mass(unit::size(of.segments), 0.0);
  double sum = 0.0;
  for (index_t id = 0; id < of.segments; ++id) {
    const double logit = static_cast<double>(of.at(head, id)) / std::sqrt(static_cast<double>(of.head_dim));
    if (of.eligible(id)) sum += mass[unit::size(id)] = std::exp(logit);
  }
  for (double& share : mass) share = sum > 0 ? share / sum * one : 0.0;
  return mass;
}

}  // namespace

TEST_CASE("each head's softmax is pooled over the heads, whatever the lengths of the segments") {
  unit::random random(51);
  for (int round = 0; round < 200; ++round) {
    const auto scores = unit::random_table(random, random.between(1, 8), random.between(1, 40), false);
    const votes most = agreed(largest, scores);
    const votes all = agreed(mean, scores);
    std::vector<double> most_exact(unit::size(scores.segments)), all_exact(most_exact);
    for (index_t head = 0; head < scores.heads; ++head) {
      const std::vector<double> mass = softmax_of(scores, head);
      for (std::size_t id = 0; id < mass.size(); ++id) {
        most_exact[id] = std::max(most_exact[id], mass[id]);
        all_exact[id] += mass[id];
      }
    }
    for (index_t id = 0; id < scores.segments; ++id) {
      const std::size_t i = unit::size(id);
      if (!scores.eligible(id)) {
        REQUIRE(most[i] == not_eligible);
        REQUIRE(all[i] == not_eligible);
        continue;
      }
      // an exponent and 40 additions are off by less than 4e-6 of the mass; each head rounds once
      REQUIRE(std::fabs(static_cast<double>(most[i]) - most_exact[i]) < 1.5 + 4e-6 * most_exact[i]);
      REQUIRE(std::fabs(static_cast<double>(all[i]) - all_exact[i]) < 1.5 * scores.heads + 4e-6 * all_exact[i]);
    }
  }
}

TEST_CASE("heads may come in any order and in any parts") {
  unit::random random(52);
  for (int round = 0; round < 100; ++round) {
    const auto scores = unit::random_table(random, 7, random.below(30), true);
    for (const pooled_mass& aggregate : {largest, mean}) {
      votes in_parts = scores.before;
      for (const index_t head : {4, 0, 6, 1, 5, 3, 2}) unit::add_heads(aggregate, scores, head, head + 1, in_parts);
      REQUIRE(in_parts == agreed(aggregate, scores));
    }
  }
}

TEST_CASE("a head that looks at one segment outbids one with larger scores that looks at none") {
  // head 0 has the largest scores, all alike; head 1 has small ones, and one that stands out
  const auto scores = table(2, {900.0f, 900.0f, 900.0f, 900.0f, 0.0f, 0.0f, 60.0f, 0.0f});
  const votes pooled = agreed(largest, scores);
  CHECK(pooled[2] > pooled[0]);
  CHECK(pooled[0] == pooled[1]);
  CHECK(pooled[0] == pooled[3]);
}

TEST_CASE("NaN counts as nothing, +inf takes all, and with no number at all nobody has any mass") {
  const votes pooled = agreed(largest, table(1, {not_a_number, 3.0f, infinity, -infinity}));
  CHECK(pooled == votes{0, 0, static_cast<votes_t>(one), 0});
  CHECK(agreed(largest, table(1, {not_a_number, not_a_number})) == votes{0, 0});
  CHECK(agreed(largest, table(1, {})) == votes{});
  CHECK(not_eligible < pooled_mass::least);
}

TEST_CASE("masses of different layers are not pooled") {
  CHECK(pooled_mass{}.problem() == nullptr);
  CHECK(pooled_mass{.per = scope::layer}.problem() == nullptr);
  CHECK(pooled_mass{.per = scope::sequence}.problem() != nullptr);
}

TEST_CASE("a scale and a soft cap of the model's own hold for masses of summaries") {
  unit::random random(57);
  for (int round = 0; round < 50; ++round) REQUIRE(unit::caps_scores(largest, random));
}

}  // namespace zoomr::pooled_mass_test

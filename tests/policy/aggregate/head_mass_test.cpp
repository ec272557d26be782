// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <policy/aggregate/scores.hpp>
#include <zoomr/policy/aggregate/head_mass.hpp>

namespace zoomr {
using unit::agreed;
using unit::table;
using unit::votes;

namespace {

constexpr votes_t one = 16777216;  // a mass of 1

/// The softmax in double, in units, of what is eligible and finite.
std::vector<double> mass_by_softmax(const unit::score_table& of) {
  std::vector<double> mass(unit::size(of.segments), 0.0);
  for (index_t head = 0; head < of.heads; ++head) {
    const auto weight = [&](index_t id) {
      const double logit = static_cast<double>(of.at(head, id)) / std::sqrt(static_cast<double>(of.head_dim));
      return of.eligible(id) ? of.tokens[unit::size(id)] * std::exp(logit) : 0.0;
    };
    double sum = 0.0;
    for (index_t id = 0; id < of.segments; ++id) sum += weight(id);
    for (index_t id = 0; id < of.segments && sum > 0; ++id) mass[unit::size(id)] += weight(id) / sum * one;
  }
  return mass;
}

}  // namespace

TEST_CASE("a head spreads its mass as a softmax would, weighted by tokens") {
  unit::random random(31);
  for (int round = 0; round < 200; ++round) {
    const auto scores = unit::random_table(random, random.between(1, 8), random.between(1, 40), false);
    const votes mass = agreed(head_mass{}, scores);
    const std::vector<double> exact = mass_by_softmax(scores);
    for (index_t id = 0; id < scores.segments; ++id) {
      if (!scores.eligible(id)) {
        REQUIRE(mass[unit::size(id)] == not_eligible);
        continue;
      }
      // two exponents, a logarithm and 40 additions are off by less than 4e-6 of the mass; each head rounds once
      const double within = 1.5 * scores.heads + 4e-6 * exact[unit::size(id)];
      REQUIRE(std::fabs(static_cast<double>(mass[unit::size(id)]) - exact[unit::size(id)]) < within);
    }
  }
}

TEST_CASE("equal scores share the mass by their tokens") {
  auto scores = table(1, {5.0f, 5.0f});
  CHECK(agreed(head_mass{}, scores) == votes{one / 2, one / 2});
  scores.tokens = {1, 3};
  const votes mass = agreed(head_mass{}, scores);
  CHECK(std::abs(mass[0] - one / 4) <= 4);
  CHECK(std::abs(mass[1] - 3 * one / 4) <= 4);
}

TEST_CASE("all of a head's mass goes to the only segment, or to a score of +inf") {
  CHECK(agreed(head_mass{}, table(1, {-3.0f})) == votes{one});
  CHECK(agreed(head_mass{}, table(1, {-infinity})) == votes{one});
  CHECK(agreed(head_mass{}, table(1, {3.0f, infinity})) == votes{0, one});
  CHECK(agreed(head_mass{}, table(1, {infinity, 3.0f, infinity})) == votes{one / 2, 0, one / 2});
  CHECK(agreed(head_mass{}, table(1, {-infinity, 3.0f})) == votes{0, one});
}

TEST_CASE("NaN counts as nothing, and a head that knows nothing else says nothing") {
  CHECK(agreed(head_mass{}, table(1, {not_a_number, 3.0f})) == votes{0, one});
  CHECK(agreed(head_mass{}, table(2, {not_a_number, not_a_number, 1.0f, not_a_number})) == votes{one, 0});
  CHECK(agreed(head_mass{}, table(1, {not_a_number, not_a_number})) == votes{0, 0});
}

TEST_CASE("a segment with nothing left gets no mass, and takes none from the others") {
  auto scores = table(1, {50.0f, 1.0f});
  scores.before[0] = not_eligible;
  CHECK(agreed(head_mass{}, scores) == votes{not_eligible, one});
  scores.before[1] = not_eligible;
  CHECK(agreed(head_mass{}, scores) == votes{not_eligible, not_eligible});
}

TEST_CASE("masses add up to the same in any grouping of the heads") {
  unit::random random(32);
  for (int round = 0; round < 200; ++round) {
    const auto scores = unit::random_table(random, random.between(1, 9), random.between(1, 30), true);
    const votes together = agreed(head_mass{}, scores);
    votes apart = scores.before;
    for (index_t head = scores.heads; head-- > 0;) unit::add_heads(head_mass{}, scores, head, head + 1, apart);
    REQUIRE(apart == together);
    for (index_t id = 0; id < scores.segments; ++id) {
      REQUIRE((scores.eligible(id) ? together[unit::size(id)] >= 0 : together[unit::size(id)] == not_eligible));
    }
  }
}

TEST_CASE("a scale and a soft cap of the model's own hold for masses of summaries") {
  unit::random random(57);
  for (int round = 0; round < 50; ++round) REQUIRE(unit::caps_scores(head_mass{}, random));
}

TEST_CASE("a head of a weight counts as often as it says, and weights of 1 change nothing") {
  unit::random random(33);
  for (int round = 0; round < 200; ++round) {
    const auto scores = unit::random_table(random, random.between(1, 6), random.between(1, 30), true);
    const auto rule = head_mass{};
    std::vector<votes_t> weights(unit::size(scores.heads), 1);
    REQUIRE(unit::weighed(rule, scores, weights) == agreed(rule, scores));
    for (votes_t& weight : weights) weight = random.between(1, 65536);
    votes expected = scores.before;
    for (index_t head = 0; head < scores.heads; ++head) {
      votes alone = scores.before;
      unit::add_heads(rule, scores, head, head + 1, alone);
      for (index_t id = 0; id < scores.segments; ++id) {
        if (scores.eligible(id)) expected[unit::size(id)] += weights[unit::size(head)] * alone[unit::size(id)];
      }
    }
    REQUIRE(unit::weighed(rule, scores, weights) == expected);
  }
}

}  // namespace zoomr

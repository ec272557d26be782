// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <policy/aggregate/scores.hpp>
#include <zoomr/policy/aggregate/head_posterior.hpp>
#include <zoomr/policy/posterior_gate.hpp>

#include <cmath>   // std::exp, std::fabs, std::log
#include <vector>  // std::vector

namespace zoomr::head_posterior_test {
namespace {

constexpr double one = 1099511627776.0;  // a posterior of 1: 2^40
constexpr head_posterior agrees{};

std::vector<votes_t> votes_of(std::vector<float> shares, const std::vector<float>& weights,
                              std::vector<votes_t> votes) {
  const auto heads = static_cast<index_t>(weights.size());
  const auto segments = static_cast<index_t>(votes.size());
  agrees.add_shares({shares.data(), {heads, segments}}, weights, votes);
  return votes;
}

}  // namespace

TEST_CASE("votes are the softmax of weighted log shares, and add up to one") {
  unit::random random(77);
  for (int round = 0; round < 200; ++round) {
    const index_t heads = random.between(1, 12), segments = random.between(1, 60);
    std::vector<float> shares, weights;
    std::vector<votes_t> votes;
    for (index_t i = 0; i < heads * segments; ++i)
      shares.push_back(-0.01f * static_cast<float>(random.between(0, 1200)));
    for (index_t h = 0; h < heads; ++h) weights.push_back(0.05f * static_cast<float>(random.between(1, 50)));
    for (index_t id = 0; id < segments; ++id) votes.push_back(random.between(0, 9) == 0 ? not_eligible : 0);
    std::vector<double> sums(votes.size());
    double all = 0;
    for (std::size_t id = 0; id < votes.size(); ++id) {
      for (std::size_t h = 0; h < weights.size(); ++h)
        sums[id] += double{weights[h]} * double{shares[h * votes.size() + id]};
      if (votes[id] != not_eligible) all += std::exp(sums[id]);
    }
    const std::vector<votes_t> made = votes_of(shares, weights, votes);
    votes_t total = 0;
    for (std::size_t id = 0; id < votes.size(); ++id) {
      if (votes[id] == not_eligible) {
        REQUIRE(made[id] == not_eligible);
        continue;
      }
      const double exact = std::exp(sums[id]) / all * one;
      // sums of up to 12 products of up to 30 each are off by less than 1e-4
      REQUIRE(std::fabs(static_cast<double>(made[id]) - exact) < 1.5 + 2e-4 * exact);
      total += made[id];
    }
    if (all > 0) REQUIRE(std::fabs(static_cast<double>(total) - one) < 1e-5 * one);
  }
}

TEST_CASE("a head that is sure and has weight decides, and one without does not") {
  // [heads, segments]: the first head is sure of 1, the second of 2
  const std::vector<float> shares = {-9.0f, -0.01f, -9.0f, -9.0f, -9.0f, -0.01f};
  const auto first = votes_of(shares, {2.0f, 0.1f}, {0, 0, 0});
  CHECK(static_cast<double>(first[1]) > 0.99 * one);
  const auto second = votes_of(shares, {0.1f, 2.0f}, {0, 0, 0});
  CHECK(static_cast<double>(second[2]) > 0.99 * one);
  const auto torn = votes_of(shares, {1.0f, 1.0f}, {0, 0, 0});
  CHECK(torn[1] == torn[2]);
  CHECK(static_cast<double>(torn[1]) > 0.49 * one);
}

TEST_CASE("what no query knows has no votes, a share of nothing counts little, and all the same is a flat posterior") {
  const auto made = votes_of({not_a_number, -infinity, 0.0f, -1.0f, -1.0f, -1.0f}, {1.0f, 1.0f}, {0, 0, 0});
  CHECK(made[0] == 0);
  CHECK(made[1] == 0);  // e^-87
  CHECK(static_cast<double>(made[2]) == one);
  const auto flat = votes_of({-2.0f, -2.0f, -2.0f, -2.0f}, {0.7f}, {0, 0, 0, 0});
  CHECK(flat == std::vector<votes_t>(4, static_cast<votes_t>(one / 4)));
  CHECK(votes_of({not_a_number, not_a_number}, {1.0f}, {0, 0}) == std::vector<votes_t>{0, 0});
  CHECK(votes_of({-1.0f}, {1.0f}, {not_eligible}) == std::vector<votes_t>{not_eligible});
}

TEST_CASE("one more class has its share of the posterior, and the segments have what it leaves") {
  const auto with_none = [](std::vector<float> shares, std::vector<votes_t> votes, float none, float slope = 0) {
    const auto segments = static_cast<index_t>(votes.size());
    const std::vector<float> weights = {1.0f};
    const votes_t of_none = agrees.add_shares({shares.data(), {1, segments}}, weights, votes, {none, slope});
    votes.push_back(of_none);
    return votes;
  };
  const auto quarter = static_cast<votes_t>(one / 4);
  CHECK(with_none({-2.0f, -2.0f, -2.0f}, {0, 0, 0}, -2.0f) == std::vector<votes_t>(4, quarter));
  const auto ruled_out = with_none({-2.0f, -2.0f, -2.0f}, {0, not_eligible, 0}, -100.0f);
  CHECK(ruled_out == std::vector<votes_t>{2 * quarter, not_eligible, 2 * quarter, 0});
  const auto certain = with_none({-60.0f, not_a_number}, {0, 0}, 0.0f);
  CHECK(certain == std::vector<votes_t>{0, 0, 4 * quarter});
  CHECK(with_none({not_a_number}, {0}, -3.0f) == std::vector<votes_t>{0, 4 * quarter});
  CHECK(with_none({-2.0f, -2.0f}, {0, 0}, -infinity) == std::vector<votes_t>{2 * quarter, 2 * quarter, 0});
  // Its logit by the segments that are eligible, also where no share of theirs is known.
  const float of_three = -2.0f + 2 * std::log(3.0f);
  const auto close = [](votes_t found, votes_t wanted) {
    return std::fabs(static_cast<double>(found - wanted)) < 1e-5 * one;  // logarithms in float
  };
  for (const votes_t of_one : with_none({-2.0f, -2.0f, -2.0f}, {0, 0, 0}, of_three, 2.0f)) {
    CHECK(close(of_one, quarter));
  }
  const auto among_three = with_none({-2.0f, -9.0f, -2.0f, -2.0f}, {0, not_eligible, 0, 0}, of_three, 2.0f);
  CHECK(close(among_three.back(), quarter));
  CHECK(with_none({not_a_number, -1.0f}, {0, not_eligible}, -3.0f, 5.0f).back() == 4 * quarter);
  CHECK(with_none({-1.0f}, {not_eligible}, -3.0f, 5.0f) == std::vector<votes_t>{not_eligible, 4 * quarter});
  CHECK(with_none({-2.0f, -2.0f}, {0, 0}, -infinity, 5.0f) == std::vector<votes_t>{2 * quarter, 2 * quarter, 0});
}

TEST_CASE("a gate compares entropies in units, and of equal votes a segment's come first") {
  CHECK_FALSE(posterior_gate{}.bounds());
  CHECK_FALSE(posterior_gate{infinity, {}}.bounds());
  CHECK_FALSE(posterior_gate{}.unsure(votes_t{40} << 40, 0, 1));
  const posterior_gate one_bit{1.0f, {}};
  const auto bit = static_cast<votes_t>(one);
  CHECK(one_bit.most == bit);
  CHECK_FALSE(one_bit.unsure(bit, 0, bit / 2));
  CHECK(one_bit.unsure(bit + 1, 0, bit / 2));
  CHECK_FALSE(one_bit.unsure(bit + 1, bit, not_eligible));
  CHECK(posterior_gate{0.0f, {}}.bounds());
  CHECK(posterior_gate{0.0f, {}}.unsure(1, 0, bit));
  const posterior_gate of_none{infinity, {-3.0f}};
  CHECK(of_none.bounds());
  CHECK_FALSE(of_none.unsure(bit, 5, 5));
  CHECK(of_none.unsure(bit, 6, 5));
}

TEST_CASE("the number of queries is at least one") {
  CHECK(agrees.problem() == nullptr);
  CHECK(head_posterior{.queries = 0}.problem() != nullptr);
}

}  // namespace zoomr::head_posterior_test

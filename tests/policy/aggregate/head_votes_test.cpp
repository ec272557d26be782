// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <policy/aggregate/scores.hpp>
#include <zoomr/policy/aggregate/head_votes.hpp>

#include <algorithm>  // std::stable_sort
#include <numeric>    // std::iota

namespace zoomr {
using unit::agreed;
using unit::table;
using unit::votes;

namespace {

/// The definition: each head sorts what is eligible, NaN last, ties to the lower id, and names its first k.
votes votes_by_sorting(const unit::score_table& of, index_t k) {
  votes votes = of.before;
  for (index_t head = 0; head < of.heads; ++head) {
    std::vector<index_t> ids;
    for (index_t id = 0; id < of.segments; ++id) {
      if (of.eligible(id)) ids.push_back(id);
    }
    std::stable_sort(ids.begin(), ids.end(), [&](index_t a, index_t b) {
      const float score_a = of.at(head, a);
      const float score_b = of.at(head, b);
      if (score_b != score_b) return score_a == score_a;
      return score_a > score_b;
    });
    for (index_t vote = 0; vote < std::min(k, static_cast<index_t>(ids.size())); ++vote) {
      ++votes[unit::size(ids[unit::size(vote)])];
    }
  }
  return votes;
}

}  // namespace

TEST_CASE("each head votes for its k best segments") {
  const auto scores = table(2, {0.1f, 0.9f, 0.5f,  //
                                0.7f, 0.8f, 0.2f});
  CHECK(agreed(head_votes{.k = 1}, scores) == votes{0, 2, 0});
  CHECK(agreed(head_votes{.k = 2}, scores) == votes{1, 2, 1});
  CHECK(agreed(head_votes{.k = 5}, scores) == votes{2, 2, 2});
}

TEST_CASE("ties go to the lower id; infinities count, and NaN is the last choice") {
  CHECK(agreed(head_votes{.k = 2}, table(1, {1.0f, 1.0f, 1.0f})) == votes{1, 1, 0});
  CHECK(agreed(head_votes{.k = 1}, table(1, {-0.0f, 0.0f})) == votes{1, 0});
  CHECK(agreed(head_votes{.k = 1}, table(1, {3.0f, infinity, infinity})) == votes{0, 1, 0});
  CHECK(agreed(head_votes{.k = 1}, table(1, {not_a_number, -infinity})) == votes{0, 1});
  CHECK(agreed(head_votes{.k = 2}, table(1, {not_a_number, -infinity})) == votes{1, 1});
}

TEST_CASE("a segment with nothing left gets no vote, however high its score") {
  auto scores = table(1, {9.0f, 1.0f, 2.0f});
  scores.before[0] = not_eligible;
  CHECK(agreed(head_votes{.k = 1}, scores) == votes{not_eligible, 0, 1});
  scores.before = votes(3, not_eligible);
  CHECK(agreed(head_votes{.k = 2}, scores) == scores.before);
}

TEST_CASE("votes are those of a sort, and add up in any grouping of the heads") {
  unit::random random(30);
  for (int round = 0; round < 300; ++round) {
    const auto scores = unit::random_table(random, random.between(1, 9), random.below(30), true);
    const head_votes aggregate{.k = random.between(1, 4)};
    CAPTURE(round);
    const votes together = agreed(aggregate, scores);
    REQUIRE(together == votes_by_sorting(scores, aggregate.k));
    votes apart = scores.before;
    for (index_t head = scores.heads; head-- > 0;) unit::add_heads(aggregate, scores, head, head + 1, apart);
    REQUIRE(apart == together);
  }
}

TEST_CASE("head_votes needs at least one vote, and a segment without one is not wanted") {
  CHECK(head_votes{}.k == 2);
  CHECK(head_votes{}.per == scope::sequence);
  CHECK(head_votes{}.problem() == nullptr);
  CHECK(head_votes{.k = 0}.problem() == std::string("head_votes: k must be at least 1"));
  CHECK(head_votes::least == 1);
}

TEST_CASE("a head of a weight counts as often as it says, and weights of 1 change nothing") {
  unit::random random(33);
  for (int round = 0; round < 200; ++round) {
    const auto scores = unit::random_table(random, random.between(1, 6), random.between(1, 30), true);
    const auto rule = head_votes{.k = random.between(1, 4)};
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

// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <agree/scores.hpp>
#include <zoomr/agree/head_votes.hpp>

#include <algorithm>  // std::stable_sort
#include <numeric>    // std::iota

namespace zoomr {
using unit::agreed;
using unit::table;
using unit::tallies;

namespace {

/// The definition: each head sorts what is eligible, NaN last, ties to the lower id, and names its first k.
tallies votes_by_sorting(const unit::score_table& of, index k) {
  tallies votes = of.before;
  for (index head = 0; head < of.heads; ++head) {
    std::vector<index> ids;
    for (index id = 0; id < of.segments; ++id) {
      if (of.eligible(id)) ids.push_back(id);
    }
    std::stable_sort(ids.begin(), ids.end(), [&](index a, index b) {
      const float score_a = of.at(head, a);
      const float score_b = of.at(head, b);
      if (score_b != score_b) return score_a == score_a;
      return score_a > score_b;
    });
    for (index vote = 0; vote < std::min(k, static_cast<index>(ids.size())); ++vote) {
      ++votes[unit::size(ids[unit::size(vote)])];
    }
  }
  return votes;
}

}  // namespace

TEST_CASE("each head votes for its k best segments") {
  const auto scores = table(2, {0.1f, 0.9f, 0.5f,  //
                                0.7f, 0.8f, 0.2f});
  CHECK(agreed(head_votes{.k = 1}, scores) == tallies{0, 2, 0});
  CHECK(agreed(head_votes{.k = 2}, scores) == tallies{1, 2, 1});
  CHECK(agreed(head_votes{.k = 5}, scores) == tallies{2, 2, 2});
}

TEST_CASE("ties go to the lower id; infinities count, and NaN is the last choice") {
  CHECK(agreed(head_votes{.k = 2}, table(1, {1.0f, 1.0f, 1.0f})) == tallies{1, 1, 0});
  CHECK(agreed(head_votes{.k = 1}, table(1, {-0.0f, 0.0f})) == tallies{1, 0});
  CHECK(agreed(head_votes{.k = 1}, table(1, {3.0f, infinity, infinity})) == tallies{0, 1, 0});
  CHECK(agreed(head_votes{.k = 1}, table(1, {not_a_number, -infinity})) == tallies{0, 1});
  CHECK(agreed(head_votes{.k = 2}, table(1, {not_a_number, -infinity})) == tallies{1, 1});
}

TEST_CASE("a segment with nothing left gets no vote, however high its score") {
  auto scores = table(1, {9.0f, 1.0f, 2.0f});
  scores.before[0] = not_eligible;
  CHECK(agreed(head_votes{.k = 1}, scores) == tallies{not_eligible, 0, 1});
  scores.before = tallies(3, not_eligible);
  CHECK(agreed(head_votes{.k = 2}, scores) == scores.before);
}

TEST_CASE("votes are those of a sort, and add up in any grouping of the heads") {
  unit::random random(30);
  for (int round = 0; round < 300; ++round) {
    const auto scores = unit::random_table(random, random.between(1, 9), random.below(30), true);
    const head_votes agree{.k = random.between(1, 4)};
    CAPTURE(round);
    const tallies together = agreed(agree, scores);
    REQUIRE(together == votes_by_sorting(scores, agree.k));
    tallies apart = scores.before;
    for (index head = scores.heads; head-- > 0;) unit::add_heads(agree, scores, head, head + 1, apart);
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

}  // namespace zoomr

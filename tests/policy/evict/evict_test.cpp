// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/policy/evict/accumulated_attention.hpp>
#include <zoomr/policy/evict/keep_all.hpp>
#include <zoomr/policy/evict/observation_window.hpp>
#include <zoomr/policy/evict/redundancy_aware.hpp>

#include <algorithm>  // std::max
#include <cmath>      // std::exp
#include <string>     // std::string
#include <vector>     // std::vector

namespace zoomr {

namespace {

/// A KV lane as an evictor is shown it.
struct shown {
  index_t group = 1;
  index_t head_dim = 8;
  std::vector<float> received;  // [group, tokens]
  std::vector<float> keys;      // [tokens, head_dim]
  index_t scored = 0;
  index_t queries = 4;

  index_t tokens() const { return static_cast<index_t>(received.size()) / group; }
  template <class Evictor>
  std::vector<float> rated(const Evictor& evict) const {
    std::vector<float> copy = keys;
    std::vector<float> importance(received.size() / static_cast<std::size_t>(group), 77.0f);
    kv_lane_attention seen{{received.data(), {group, tokens()}}, {}, scored, queries};
    if (!keys.empty()) seen.keys = {copy.data(), {tokens(), head_dim}};
    evict.rate(seen, importance);
    importance.resize(unit::size(scored));
    return importance;
  }
};

/// Tokens with keys of their own, some of them again and again.
shown random_kv_lane(unit::random& random, index_t group, index_t tokens, index_t last) {
  shown made;
  made.group = group;
  made.received = random.floats(unit::size(group * tokens), 0.0f, 1.0f);
  const auto some = random.floats(unit::size(4 * made.head_dim));
  for (index_t t = 0; t < tokens; ++t) {
    const bool again = random.chance(0.4);
    const auto from = unit::size(random.below(4) * made.head_dim);
    for (index_t d = 0; d < made.head_dim; ++d) {
      const float own = random.uniform(-1.0f, 1.0f);
      made.keys.push_back(again ? 3.0f * some[from + unit::size(d)] + 0.1f * own : own);
    }
  }
  made.scored = tokens - last;
  return made;
}

/// The mean cosine of each key with all others, of which each key spares the last that repeats it, or the first of all;
/// then a softmax.
std::vector<double> redundancy_of(const shown& kv_lane, double similar) {
  const index_t n = kv_lane.tokens();
  const auto product = [&](index_t a, index_t b) {
    double sum = 0;
    for (index_t d = 0; d < kv_lane.head_dim; ++d) {
      sum += double{kv_lane.keys[unit::size(a * kv_lane.head_dim + d)]} *
             double{kv_lane.keys[unit::size(b * kv_lane.head_dim + d)]};
    }
    return sum;
  };
  std::vector<double> mean(unit::size(n));
  for (index_t row = 0; row < n; ++row) {
    std::vector<double> cosines;
    index_t last = 0;
    for (index_t t = 0; t < n; ++t) {
      cosines.push_back(t == row ? 0.0 : product(row, t) / std::sqrt(product(row, row) * product(t, t)));
      if (cosines.back() > similar) last = t;
    }
    for (index_t t = 0; t < n; ++t) mean[unit::size(t)] += t == last ? 0.0 : cosines[unit::size(t)] / n;
  }
  double all = 0;
  for (const double x : mean) all += std::exp(x);
  for (double& x : mean) x = std::exp(x) / all;
  return mean;
}

}  // namespace

TEST_CASE("keep_all keeps every token") {
  CHECK_FALSE(keep_all::observes);
  for (const index_t tokens : {0, 1, 4097}) CHECK(keep_all{}.kept(tokens) == tokens);
}

TEST_CASE("observation_window keeps its number of tokens of a longer prompt, and all of a shorter one") {
  CHECK(observation_window::observes);
  constexpr observation_window evict{.tokens = 100};
  CHECK(evict.kept(1) == 1);
  CHECK(evict.kept(100) == 100);
  CHECK(evict.kept(101) == 100);
  CHECK(evict.kept(unlimited) == 100);
  CHECK(observation_window{}.kept(unlimited) == unlimited);  // r = infinity: nothing is lost
}

TEST_CASE("each problem of observation_window has its sentence") {
  const auto problem = [](observation_window evict) { return std::string(evict.problem()); };
  CHECK(observation_window{}.problem() == nullptr);
  CHECK(observation_window{.tokens = 32}.problem() == nullptr);
  CHECK(problem({.tokens = 31}) == "observation_window: tokens must be at least queries, which are always kept");
  for (const observation_window bad : {observation_window{.queries = 0}, observation_window{.pooling = 0},
                                       observation_window{.pooling = 6}, observation_window{.pooling = -7}}) {
    CHECK(problem(bad) == "observation_window: queries must be at least 1 and pooling odd");
  }
}

TEST_CASE("a KV lane pools the largest around a token, clipped to the scored ones, then over its group") {
  shown kv_lane;
  kv_lane.group = 2;
  kv_lane.received = {1, 5, 2, 9, 0, 3, /* head 1 */ 4, 1, 8, 2, 2, 2};
  kv_lane.scored = 4;
  CHECK(kv_lane.rated(observation_window{.pooling = 1}) == std::vector<float>{4, 5, 8, 9});
  CHECK(kv_lane.rated(observation_window{.pooling = 3}) == std::vector<float>{5, 8, 9, 9});
  CHECK(kv_lane.rated(observation_window{.pooling = 3, .mean_of_group = true}) == std::vector<float>{9, 13, 17, 17});
  CHECK(kv_lane.rated(observation_window{.pooling = 99}) == std::vector<float>{9, 9, 9, 9});
}

TEST_CASE("accumulated_attention rates a token by all that it has received, over the group") {
  shown kv_lane;
  kv_lane.group = 2;
  kv_lane.received = {1, 5, 2, 9, 4, 1, 8, 2};
  kv_lane.scored = 3;
  CHECK(kv_lane.rated(accumulated_attention{}) == std::vector<float>{5, 6, 10});
  kv_lane.scored = 0;
  CHECK(kv_lane.rated(accumulated_attention{}).empty());
  CHECK(accumulated_attention{.tokens = 10}.kept(11) == 10);
  CHECK(accumulated_attention{.tokens = 10}.kept(9) == 9);
  CHECK(accumulated_attention{.recent = 3}.safe(5) == 3);
  CHECK(accumulated_attention{.recent = 3}.safe(2) == 2);
  CHECK(accumulated_attention{}.observed(1234) == 1234);  // all queries count
}

TEST_CASE("redundancy_aware weighs attention against redundancy, as in double") {
  unit::random random(61);
  for (int round = 0; round < 60; ++round) {
    const index_t tokens = random.between(1, 40);
    const shown kv_lane = random_kv_lane(random, random.between(1, 4), tokens, random.below(tokens));
    const redundancy_aware evict{.pooling = 3, .mean_of_group = random.chance(0.5), .attention = 0.3f};
    const std::vector<double> redundancy = redundancy_of(kv_lane, 0.5);
    const std::vector<float> importance = kv_lane.rated(evict);
    shown first_head = kv_lane;  // the group is observed as one
    first_head.group = 1;
    first_head.received.resize(unit::size(tokens));
    const std::vector<float> received = first_head.rated(observation_window{.pooling = 3});
    for (std::size_t t = 0; t < importance.size(); ++t) {
      const double exact = 0.3 * static_cast<double>(received[t]) / kv_lane.queries - 0.7 * redundancy[t];
      CAPTURE(t);
      REQUIRE(std::fabs(static_cast<double>(importance[t]) - exact) < 1e-6);
    }
  }
}

TEST_CASE("of keys that repeat each other the latest is the least redundant, and a key like no other less still") {
  shown kv_lane;
  kv_lane.received = std::vector<float>(5, 0.25f);
  kv_lane.scored = 5;
  for (const index_t axis : {0, 0, 3, 0, 0}) {
    for (index_t d = 0; d < 8; ++d) kv_lane.keys.push_back(d == axis ? 2.0f : 0.0f);
  }
  const std::vector<float> rated = kv_lane.rated(redundancy_aware{});
  CHECK(rated[0] == rated[1]);  // ties, which the lower slot wins
  CHECK(rated[3] > rated[0]);
  CHECK(rated[4] > rated[3]);
  CHECK(rated[2] >= rated[4]);
  const std::vector<float> only_attention = kv_lane.rated(redundancy_aware{.attention = 1.0f});
  for (const float importance : only_attention) CHECK(importance == 0.25f / 4);
}

TEST_CASE("redundancy_aware observes a group as one: its largest logits, or their means, among the tokens before") {
  // one dimension of 4 counts, so that a logit is half of a product; two heads, and the second observed query of two
  const std::vector<float> along{2, 0, -4, 6, 9, 9};
  std::vector<float> keys, work(6);
  for (const float key : along) {
    keys.push_back(key);
    for (index_t d = 1; d < 4; ++d) keys.push_back(0.0f);
  }
  std::vector<float> queries(8, 0.0f);
  queries[0] = 1.0f, queries[4] = -1.0f;
  const auto observed = [&](redundancy_aware evict, index_t head) {
    std::vector<float> received(6, 5.0f);
    observed_query of;
    of.group = {queries.data(), {2, 4}};
    of.keys = {keys.data(), {6, 4}};
    of.work = work;
    of.head = head;
    of.earlier = 4;
    evict.update_importance(of, received);
    return received;
  };
  const auto shares = [](std::vector<double> logits) {
    double all = 0;
    for (double& x : logits) all += x = std::exp(x);
    for (double& x : logits) x /= all;
    return logits;
  };
  const std::vector<double> largest = shares({1, 0, 2, 3});  // of (1, -1), (0, 0), (-2, 2), (3, -3)
  const std::vector<float> by_maximum = observed({}, 0), by_mean = observed({.mean_of_group = true}, 0);
  for (std::size_t t = 0; t < 4; ++t) {
    CHECK(std::fabs(static_cast<double>(by_maximum[t]) - 5 - largest[t]) < 1e-6);
    CHECK(by_mean[t] == 5.25f);
  }
  CHECK(by_maximum[4] == 5.0f);  // the observed tokens take no part
  CHECK(by_maximum[5] == 5.0f);
  CHECK(observed({}, 1) == std::vector<float>(6, 5.0f));  // nor do the other heads alone
  keys[0] = not_a_number;
  const std::vector<double> three = shares({0, 2, 3});
  const std::vector<float> one_is_odd = observed({}, 0);
  CHECK(one_is_odd[0] == 5.0f);
  for (std::size_t t = 1; t < 4; ++t) CHECK(std::fabs(static_cast<double>(one_is_odd[t]) - 5 - three[t - 1]) < 1e-6);
}

TEST_CASE("cosines that are not numbers count as 0: zero, infinite and NaN keys make nobody's rating NaN") {
  shown kv_lane;
  kv_lane.received = std::vector<float>(4, 0.25f);
  kv_lane.scored = 4;
  kv_lane.keys = std::vector<float>(4 * 8, 0.5f);
  for (index_t d = 0; d < 8; ++d) kv_lane.keys[unit::size(d)] = 0.0f;
  kv_lane.keys[8] = infinity;
  kv_lane.keys[16] = not_a_number;
  for (const float importance : kv_lane.rated(redundancy_aware{})) CHECK(importance == importance);
}

TEST_CASE("each problem of the evictors that go on while decoding has its sentence") {
  const auto sums = [](accumulated_attention evict) { return std::string(evict.problem()); };
  CHECK(accumulated_attention{}.problem() == nullptr);
  CHECK(accumulated_attention{.tokens = 32}.problem() == nullptr);
  CHECK(sums({.tokens = 31}) == "accumulated_attention: tokens must be at least recent, which are always kept");
  CHECK(sums({.recent = 0}) == "accumulated_attention: recent and every must be at least 1");
  CHECK(sums({.every = 0}) == "accumulated_attention: recent and every must be at least 1");
  const auto distinct = [](redundancy_aware evict) { return std::string(evict.problem()); };
  CHECK(redundancy_aware{}.problem() == nullptr);
  CHECK(distinct({.tokens = 7}) == "redundancy_aware: tokens must be at least queries, which are always kept");
  CHECK(distinct({.every = 7}) == "redundancy_aware: every must be at least queries, which are observed");
  CHECK(distinct({.queries = 0}) == "redundancy_aware: queries must be at least 1 and pooling odd");
  CHECK(distinct({.pooling = 2}) == "redundancy_aware: queries must be at least 1 and pooling odd");
  CHECK(distinct({.attention = 1.5f}) == "redundancy_aware: attention must lie in [0, 1]");
  CHECK(distinct({.attention = not_a_number}) == "redundancy_aware: attention must lie in [0, 1]");
}

}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// Weights of heads that are learnt: examples whose answers are known, naive derivatives, and the gate's bound.
#include <doctest/doctest.h>

#include <algorithm>  // std::count, std::max, std::min
#include <cmath>      // std::abs, std::isnan, std::log2
#include <limits>     // std::numeric_limits
#include <random>     // std::mt19937
#include <vector>

#include "retrieval/judge.hpp"
#include "retrieval/learn.hpp"
#include "retrieval/trials.hpp"

namespace decode::retrieval {
namespace {

using random_bits = std::mt19937;

/// Log shares of a head that looks at nothing in particular: -1.5 to -3.5.
float noise(random_bits& random) { return -1.5f - 0.001f * static_cast<float>(random() % 2000); }

example noisy(index_t number, std::size_t heads, std::size_t segments, std::vector<std::size_t> needed,
              random_bits& random) {
  example item{.group = "a", .number = number, .needed = std::move(needed), .segments = segments, .log_share = {}};
  for (std::size_t i = 0; i < heads * segments; ++i) item.log_share.push_back(noise(random));
  return item;
}

void look(example& at, std::size_t head, std::size_t id, float share = -0.2f) {
  at.log_share[head * at.segments + id] = share;
}

std::vector<example> examples_with(random_bits& random, int count) {
  std::vector<example> list;
  for (int i = 0; i < count; ++i) {
    const std::size_t segments = 4 + random() % 4, first = random() % 2;
    std::vector<std::size_t> needed;
    if (i % 3 != 0) needed.push_back(first);
    if (i % 3 == 2) needed.push_back(first + 1 + random() % 2);
    list.push_back(noisy(i, 5, segments, needed, random));
    list.back().weight = 0.25 + static_cast<double>(random() % 4);
  }
  return list;
}

judged_choice choice(double needed, double in_set, double entropy, double weight = 1, bool none_wins = false) {
  return {.weight = weight, .needed = needed, .in_set = in_set, .entropy = entropy, .none_wins = none_wins};
}

/// Entropies in eighths of a bit, so that many are alike.
std::vector<judged_choice> random_choices(random_bits& random, int count) {
  std::vector<judged_choice> list;
  for (int i = 0; i < count; ++i) {
    const auto entropy = static_cast<double>(random() % 16) / 8, weight = static_cast<double>(1 + random() % 3);
    list.push_back(choice(random() % 5 == 0 ? 0 : 1, random() % 3 == 0 ? 0 : 1, entropy, weight, random() % 8 == 0));
  }
  return list;
}

}  // namespace

TEST_CASE("of many heads those that look at what is needed get the weight, and are judged by it") {
  constexpr std::size_t heads = 40, good = 7, fair = 23;
  random_bits random(5);
  std::vector<example> list;
  for (int i = 0; i < 60; ++i) {
    const std::size_t target = random() % 9;
    list.push_back(noisy(i, heads, 9 + random() % 5, {target}, random));
    look(list.back(), good, target);
    if (i % 3 == 0) look(list.back(), fair, target);
  }
  std::vector<const example*> learnt, others;
  for (std::size_t i = 0; i < list.size(); ++i) (i < 40 ? learnt : others).push_back(&list[i]);
  const voter_weights weights = learn(learnt, heads);
  REQUIRE(weights.heads.size() == heads);
  CHECK(weights.none.one == no_class);
  for (std::size_t head = 0; head < heads; ++head) {
    CHECK(weights.heads[head] >= 0.0f);
    if (head != good) CHECK(weights.heads[head] < 0.5f * weights.heads[good]);
  }
  CHECK(std::count(weights.heads.begin(), weights.heads.end(), 0.0f) > 25);
  const found result = summary(judge(others, weights), 10);
  CHECK(result.examples == 20);
  CHECK(result.nothing == 0);
  CHECK(result.first == 1);
  CHECK(result.in_set == 1);
  CHECK(result.taken < 2.5);
  CHECK(result.bits < 1);
  CHECK(result.gated == 0);
  voter_weights wrong{.heads = std::vector<float>(heads, 0.0f)};
  wrong.heads[good + 1] = 1.0f;
  const found astray = summary(judge(others, wrong), 0);
  CHECK(astray.first < 0.5);
  CHECK(astray.bits > result.bits + 1);
  CHECK(astray.gated == 1);
}

TEST_CASE("what is learnt follows the weights of examples, not their number") {
  // The first head looks at what is needed in the examples that count, the second in those that do not.
  std::vector<example> list;
  for (std::size_t i = 0; i < 8; ++i) {
    example item{"a", static_cast<index_t>(i), i < 2 ? 1.0 : 0.0, {i}, 10, std::vector<float>(20, -4.0f)};
    look(item, i < 2 ? 0 : 1, i, -0.3f);
    list.push_back(item);
  }
  const voter_weights weights = learn(some(list), 2);
  CHECK(weights.heads[0] > 0.5f);
  CHECK(weights.heads[1] == 0.0f);
  const found judged = summary(judge(some(list), weights), 10);
  CHECK(judged.examples == 2);
  CHECK(judged.first == 1);
}

TEST_CASE("derivatives are what small differences of the likelihood say") {
  random_bits random(17);
  const std::vector<example> list = examples_with(random, 12);
  const std::vector<const example*> each = some(list);
  likelihood on(each, 5);
  const std::vector<double> weights = {0.4, 0, 1.3, 0.2, 0.7};
  constexpr double small = 1e-5;
  constexpr none_logit none{-3, 0.7};
  for (const objective goal : {objective::any, objective::each}) {
    const slopes up = on.at(weights, none, goal);
    REQUIRE(up.heads.size() == 5);
    for (std::size_t head = 0; head < 5; ++head) {
      std::vector<double> more = weights, less = weights;
      more[head] += small, less[head] -= small;
      const double difference = on.at(more, none, goal).value - on.at(less, none, goal).value;
      CHECK(up.heads[head] == doctest::Approx(difference / (2 * small)).epsilon(1e-6));
    }
    const auto value = [&](double one, double slope) { return on.at(weights, {one, slope}, goal).value; };
    const double by_logit = value(none.one + small, none.slope) - value(none.one - small, none.slope);
    CHECK(up.none == doctest::Approx(by_logit / (2 * small)).epsilon(1e-6));
    const double by_slope = value(none.one, none.slope + small) - value(none.one, none.slope - small);
    CHECK(up.none_slope == doctest::Approx(by_slope / (2 * small)).epsilon(1e-6));
    CHECK(std::abs(on.at(weights, on.best_none(weights, goal), goal).none) < 1e-8);
  }
  // The likelihood itself: that of the probabilities.
  double sum = 0, by = 0;
  for (const example& item : list) {
    const std::vector<double> p = posterior(item, {{weights.begin(), weights.end()}, none});
    double needed = item.needed.empty() ? p.back() : part_of_none * p.back();
    for (const std::size_t id : item.needed) needed += p[id];
    sum += item.weight * std::log(needed), by += item.weight;
  }
  CHECK(on.at(weights, none, objective::any).value == doctest::Approx(sum / by));
}

TEST_CASE("none of these wins where no head finds anything, and there alone") {
  constexpr std::size_t heads = 12, good = 4;
  random_bits random(29);
  std::vector<example> list;
  for (int i = 0; i < 80; ++i) {
    const std::size_t target = random() % 8;
    list.push_back(noisy(i, heads, 8, {}, random));
    if (i % 5 == 0) continue;
    list.back().needed = {target};
    look(list.back(), good, target);
  }
  const trial halves = judge_halves(list, heads, {});
  CHECK(halves.halves[0].none.one < 0);
  for (std::size_t i = 0; i < list.size(); ++i) {
    CHECK(halves.choices[i].none_wins == (i % 5 == 0));
    CHECK_FALSE(halves.choices[i].missed());
  }
  const found result = summary(halves.choices, 100);
  CHECK(result.nothing == 16);
  CHECK(result.examples == 64);
  CHECK(result.gated == doctest::Approx(0.2));
  // Without such examples there is no such class, and with nothing else nothing can be learnt.
  std::erase_if(list, [](const example& item) { return item.needed.empty(); });
  CHECK(learn(some(list), heads).none.one == no_class);
  for (example& item : list) item.needed.clear();
  CHECK_THROWS(learn(some(list), heads));
}

TEST_CASE("the logit of none falls with the number of segments, as shares do that find nothing") {
  // What the good head finds has the same share at all lengths; what nobody looks at has 1 of the number of segments.
  constexpr std::size_t heads = 6, good = 2;
  random_bits random(37);
  std::vector<example> list;
  for (int i = 0; i < 96; ++i) {
    const std::size_t segments = i % 4 < 2 ? 8 : 400, target = random() % 8;
    list.push_back(noisy(i, heads, segments, {}, random));
    for (float& share : list.back().log_share) share = 0.2f * share - std::log(static_cast<float>(segments));
    if (i % 3 == 0) continue;
    list.back().needed = {target};
    look(list.back(), good, target, segments == 8 ? -0.2f : -2.4f);
  }
  const trial halves = judge_halves(list, heads, {});
  for (const voter_weights& half : halves.halves) CHECK(half.none.slope > 0.5);
  const found result = summary(halves.choices, 100);
  CHECK(result.first == 1);
  CHECK(result.gated == doctest::Approx(1.0 / 3));
  for (std::size_t i = 0; i < list.size(); ++i) CHECK(halves.choices[i].none_wins == (i % 3 == 0));
  // Of one length nothing is learnt about others.
  std::erase_if(list, [](const example& item) { return item.needed.empty() && item.segments > 8; });
  const voter_weights of_one_length = learn(some(list), heads);
  CHECK(of_one_length.none.slope == 0);
  CHECK(of_one_length.none.among(400) == of_one_length.none.one);
}

TEST_CASE("weights that find nothing at first do not leave everything to none") {
  // Of many heads one looks at what is needed, hardly more than others look at anything.
  constexpr std::size_t heads = 60, segments = 40, good = 3;
  random_bits random(47);
  std::vector<example> list;
  for (int i = 0; i < 40; ++i) {
    const std::size_t target = random() % segments;
    list.push_back(noisy(i, heads, segments, {}, random));
    if (i % 5 == 0) continue;
    list.back().needed = {target};
    look(list.back(), good, target, -0.9f);
  }
  const found result = summary(judge_halves(list, heads, {}).choices, 100);
  CHECK(result.first == 1);
  CHECK(result.gated < 0.3);
}

TEST_CASE("where several are needed the objective of each finds all, that of any what is found most easily") {
  // One head sees one of the two; two heads together see both, less clearly.
  constexpr std::size_t heads = 3;
  random_bits random(31);
  std::vector<example> list;
  for (int i = 0; i < 60; ++i) {
    const std::size_t first = random() % 9;
    example item{"a", i, 1, {first, first + 1}, 10, std::vector<float>(heads * 10, -6.0f)};
    look(item, 0, first, -0.05f);
    look(item, 1, first, -0.8f), look(item, 1, first + 1, -0.8f);
    list.push_back(item);
  }
  const trial each = judge_halves(list, heads, {.goal = objective::each});
  const trial any = judge_halves(list, heads, {.goal = objective::any});
  const found all_of_them = summary(each.choices, 10), one_of_them = summary(any.choices, 10);
  CHECK(all_of_them.in_set == 1);
  CHECK(all_of_them.taken == 2);
  CHECK(one_of_them.in_set == 0.5);
  CHECK(one_of_them.first == 1);
  CHECK(each.choices.front().entropy == doctest::Approx(1).epsilon(0.2));
  CHECK_FALSE(any.choices.front().missed());
  const std::vector<trial> tried = try_ways(list, heads, 0, {});
  REQUIRE(tried.size() == 2);
  CHECK(tried.front().how.goal == objective::each);
  CHECK(tried.front().bits() < tried.back().bits());
}

TEST_CASE("heads of the first layer get a weight where they help on other problems") {
  constexpr std::size_t heads = 6, first_layer = 2, good = 4;
  for (const bool helps : {true, false}) {
    random_bits random(37);
    std::vector<example> list;
    for (int i = 0; i < 60; ++i) {
      const std::size_t target = random() % 7;
      list.push_back(noisy(i, heads, 8, {target}, random));
      look(list.back(), good, target, -0.9f);
      look(list.back(), 0, i % 2 == 0 || helps ? target : 7, -0.1f);  // or of one half of them alone
    }
    const std::vector<trial> tried = try_ways(list, heads, first_layer, {});
    REQUIRE(tried.size() == 2);
    CHECK(tried.front().how.left_out == (helps ? 0 : first_layer));
    for (const trial& item : tried) {
      CHECK((item.halves[0].heads[0] > 0) == (item.how.left_out == 0));
      CHECK(item.halves[0].heads[good] > 0);
    }
  }
}

TEST_CASE("the area is the share of pairs in which what misses is less sure") {
  random_bits random(41);
  for (int round = 0; round < 20; ++round) {
    const std::vector<judged_choice> list = random_choices(random, 40);
    double pairs = 0, right = 0;
    for (const judged_choice& a : list) {
      for (const judged_choice& b : list) {
        if (!a.missed() || b.missed() || b.needed == 0) continue;
        const double by = a.weight * b.weight;
        pairs += by;
        right += a.unsureness() > b.unsureness() ? by : a.unsureness() == b.unsureness() ? by / 2 : 0;
      }
    }
    CHECK(area_of_unsureness(list) == doctest::Approx(right / pairs));
  }
  CHECK(std::isnan(area_of_unsureness({choice(1, 1, 0.5), choice(0, 0, 2)})));
}

TEST_CASE("the bound is the smallest in hundredths that gates no more of what finds than is asked for") {
  random_bits random(43);
  for (int round = 0; round < 20; ++round) {
    std::vector<judged_choice> list = random_choices(random, 40);
    for (judged_choice& item : list) item.entropy += 0.003;
    for (const double share : {0.0, 0.05, 0.2, 0.5}) {
      const auto gated = [&](double bound) {
        double sum = 0, by = 0;
        for (const judged_choice& item : list) {
          if (item.needed == 0 || item.missed()) continue;
          by += item.weight, sum += item.gated(bound) ? item.weight : 0;
        }
        return sum / by;
      };
      const double bound = bound_by_needless(list, share);
      if (std::isfinite(bound)) {
        CHECK(gated(bound) < share + 1e-9);
      } else {
        CHECK(gated(100) > share);  // of none alone
      }
      if (std::isfinite(bound) && bound > 0) CHECK(gated(bound - 0.01) > share);
    }
  }
  // Exactly at the bound a choice is sure.
  CHECK(bound_by_needless({choice(1, 1, 0.5)}, 0.05) == doctest::Approx(0.5));
  CHECK(bound_by_needless({choice(1, 1, 0.5)}, 1) == 0);
  CHECK(bound_by_needless({choice(1, 0, 0.5), choice(0, 0, 3)}, 0.05) == 0);
  CHECK(bound_by_needless({choice(1, 1, 0.5, 1, true)}, 0.05) == std::numeric_limits<double>::infinity());
  // What it catches.
  const std::vector<judged_choice> both = {choice(1, 1, 0.5), choice(1, 0, 0.6, 3), choice(1, 0, 0.4)};
  CHECK(summary(both, bound_by_needless(both, 0)).caught == doctest::Approx(0.75));
  CHECK(std::isnan(summary({choice(1, 1, 0.5)}, 0.1).caught));
}

TEST_CASE("an oracle of heads finds what some head looks at, and chance what it names beside") {
  // Three heads and five segments; the first two have a weight.
  const voter_weights weights{.heads = {1, 2, 0}};
  std::vector<example> list;
  const auto add = [&](std::vector<std::size_t> needed, std::vector<std::size_t> named, double weight) {
    example item{"a", 0, weight, std::move(needed), 5, std::vector<float>(15, -3.0f)};
    for (std::size_t head = 0; head < 3; ++head) look(item, head, named[head]);
    list.push_back(item);
  };
  add({2}, {2, 0, 0}, 1);     // a voter; one of four others
  add({2}, {1, 0, 2}, 1);     // another head; two of four
  add({2, 3}, {1, 0, 4}, 2);  // none; three of three
  add({}, {0, 1, 2}, 5);
  const best_heads result = judge_heads(some(list), weights);
  CHECK(result.of_all == 0.5);
  CHECK(result.of_voters == 0.25);
  CHECK(result.by_chance == doctest::Approx((0.25 + 0.5 + 2) / 4));
}

}  // namespace decode::retrieval

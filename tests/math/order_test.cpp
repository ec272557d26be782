// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/math/order.hpp>

#include <algorithm>  // std::stable_sort
#include <bit>
#include <cmath>  // std::nextafter

namespace zoomr {

namespace {

/// The definition: eligible ids by descending key; a stable sort leaves ties in ascending order of ids.
template <class Key>
std::vector<index_t> ranked_by_sorting(index_t segments, Key key) {
  std::vector<index_t> ids;
  for (index_t id = 0; id < segments; ++id) {
    if (key(id) != not_eligible) ids.push_back(id);
  }
  std::stable_sort(ids.begin(), ids.end(), [&](index_t a, index_t b) { return key(a) > key(b); });
  return ids;
}

template <class Key>
std::vector<index_t> ranked(index_t segments, Key key) {
  std::vector<index_t> memory(unit::size(segments));
  ranking best(segments, key, view<index_t>(memory));
  std::vector<index_t> ids;
  for (index_t id = best.next(); id >= 0; id = best.next()) ids.push_back(id);
  CHECK(best.next() == -1);
  return ids;
}

}  // namespace

TEST_CASE("order_key orders as floats do") {
  const float ascending[] = {-infinity,
                             std::numeric_limits<float>::lowest(),
                             -2.0f,
                             -1.0f,
                             -std::numeric_limits<float>::denorm_min(),
                             0.0f,
                             std::numeric_limits<float>::denorm_min(),
                             1e-38f,
                             1.0f,
                             1.0000001f,
                             std::numeric_limits<float>::max(),
                             infinity};
  for (const float a : ascending) {
    for (const float b : ascending) CHECK((order_key(a) < order_key(b)) == (a < b));
  }
  unit::random random(12);
  for (int i = 0; i < 200000; ++i) {
    const float a = random.any_float();
    const float b = i % 3 == 0 ? std::nextafter(a, infinity) : random.any_float();
    if (a != a || b != b) continue;
    CAPTURE(a);
    CAPTURE(b);
    REQUIRE((order_key(a) < order_key(b)) == (a < b));
    REQUIRE((order_key(a) == order_key(b)) == (a == b));
  }
}

TEST_CASE("order_key makes no difference between the zeros, and none between NaNs, which come last") {
  CHECK(order_key(-0.0f) == order_key(0.0f));
  unit::random random(13);
  for (int i = 0; i < 1000; ++i) {
    const auto mantissa = static_cast<std::uint32_t>(random.between(1, 0x7fffff));
    const float nan = std::bit_cast<float>((random.chance(0.5) ? 0xff800000u : 0x7f800000u) | mantissa);
    REQUIRE(order_key(nan) == order_key(not_a_number));
    REQUIRE(order_key(nan) < order_key(-infinity));
  }
}

TEST_CASE("no score is mistaken for a segment that cannot be chosen") {
  for (const float score : {-infinity, not_a_number, std::numeric_limits<float>::lowest()}) {
    CHECK(order_key(score) > not_eligible);
  }
}

TEST_CASE("a ranking is the stable descending sort of what is eligible") {
  unit::random random(14);
  for (int round = 0; round < 300; ++round) {
    const index_t segments = random.below(round % 10 == 0 ? 500 : 40);
    const index_t different = random.between(1, 20);  // few keys: many ties
    std::vector<votes_t> keys(unit::size(segments));
    for (votes_t& key : keys) key = random.chance(0.2) ? not_eligible : random.below(different) - different / 2;
    const auto key = [&](index_t id) { return keys[unit::size(id)]; };
    CAPTURE(round);
    REQUIRE(ranked(segments, key) == ranked_by_sorting(segments, key));
  }
}

TEST_CASE("a ranking of scores puts NaN last and takes -0 for 0") {
  const float scores[] = {not_a_number, -infinity, 0.0f, -0.0f, infinity, not_a_number, 0.0f};
  const auto key = [&](index_t id) { return order_key(scores[id]); };
  CHECK(ranked(7, key) == std::vector<index_t>{4, 2, 3, 6, 1, 0, 5});
}

TEST_CASE("a ranking of nothing, or of nothing eligible, is empty") {
  CHECK(ranked(0, [](index_t) { return votes_t{1}; }).empty());
  CHECK(ranked(9, [](index_t) { return not_eligible; }).empty());
}

TEST_CASE("a ranking uses only the working memory that it needs") {
  const std::vector<votes_t> votes{3, 9, not_eligible, 9};
  std::vector<index_t> memory(6, 77);
  best_first best(4, by_votes{votes}, view<index_t>(memory));
  CHECK(best.next() == 1);
  CHECK(best.votes(1) == 9);
  CHECK(best.next() == 3);
  CHECK(best.next() == 0);
  CHECK(best.next() == -1);
  CHECK(memory[4] == 77);
  CHECK(memory[5] == 77);
}

}  // namespace zoomr

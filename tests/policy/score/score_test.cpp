// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/math/dot.hpp>
#include <zoomr/policy/score/box_bound.hpp>
#include <zoomr/policy/score/key_mass.hpp>
#include <zoomr/policy/score/mean_dot.hpp>
#include <zoomr/policy/summarize/key_box.hpp>
#include <zoomr/policy/summarize/key_mean.hpp>

#include <algorithm>  // std::max
#include <cmath>      // std::exp, std::isnan, std::log, std::sqrt

namespace zoomr {

namespace {

/// The score of a segment with these keys [count, head_dim], as the cache adds it up.
template <class Scorer, class Summarizer>
float score_of(const Scorer& score, const Summarizer& summarize, const std::vector<float>& query,
               const std::vector<float>& keys) {
  const auto head_dim = static_cast<index_t>(query.size());
  const auto count = static_cast<index_t>(keys.size() / query.size());
  return sum_over_dims(head_dim, [&](float acc, index_t d) {
    auto cell = summarize.open();
    for (index_t t = 0; t < count; ++t) summarize.fold(cell, keys[unit::size(t * head_dim + d)]);
    summarize.close(cell, count);
    return score.term(acc, query[unit::size(d)], cell);
  });
}

const index_t head_dims[] = {8, 24, 64, 128, 256};

}  // namespace

TEST_CASE("mean_dot is the dot product with the mean key, in the order of dot") {
  unit::random random(23);
  for (const index_t head_dim : head_dims) {
    const std::vector<float> query = random.floats(unit::size(head_dim));
    const std::vector<float> keys = random.floats(unit::size(5 * head_dim));
    std::vector<float> mean(unit::size(head_dim), 0.0f);
    for (index_t t = 0; t < 5; ++t) {
      for (index_t d = 0; d < head_dim; ++d) mean[unit::size(d)] += keys[unit::size(t * head_dim + d)];
    }
    for (float& m : mean) m /= 5.0f;
    CAPTURE(head_dim);
    CHECK(score_of(mean_dot{}, key_mean{}, query, keys) == dot(query.data(), mean.data(), head_dim));
  }
}

TEST_CASE("box_bound is never below the score of any key of the segment") {
  unit::random random(24);
  index_t met = 0;
  for (int round = 0; round < 500; ++round) {
    const index_t head_dim = head_dims[random.below(5)];
    const index_t count = random.between(1, 12);
    std::vector<float> query = random.floats(unit::size(head_dim));
    std::vector<float> keys = random.floats(unit::size(count * head_dim));
    // often the same number, zero, or numbers that differ by a rounding: where a bound could fail by one bit
    for (float& key : keys) key = random.chance(0.3) ? 0.25f : random.chance(0.3) ? std::nextafter(0.25f, 1.0f) : key;
    for (float& q : query) q = random.chance(0.1) ? 0.0f : q;
    const float bound = score_of(box_bound{}, key_box{}, query, keys);
    for (index_t t = 0; t < count; ++t) {
      const float score = dot(query.data(), keys.data() + t * head_dim, head_dim);
      REQUIRE(bound >= score);
      met += bound == score ? 1 : 0;
    }
  }
  CHECK(met > 10);  // it is not a bound by a wide margin only
}

TEST_CASE("box_bound is the sum of the larger products, up to rounding") {
  unit::random random(25);
  for (const index_t head_dim : head_dims) {
    const std::vector<float> query = random.floats(unit::size(head_dim));
    const std::vector<float> keys = random.floats(unit::size(2 * head_dim));
    double exact = 0.0;
    for (index_t d = 0; d < head_dim; ++d) {
      const auto q = static_cast<double>(query[unit::size(d)]);
      exact += std::fmax(q * static_cast<double>(keys[unit::size(d)]),
                         q * static_cast<double>(keys[unit::size(head_dim + d)]));
    }
    // each of head_dim / 32 + 5 additions in a row rounds a sum of at most head_dim by 6e-8
    const double within = (head_dim / 32.0 + 5.0) * 6e-8 * head_dim;
    CHECK(std::fabs(static_cast<double>(score_of(box_bound{}, key_box{}, query, keys)) - exact) < within);
  }
}

TEST_CASE("box_bound of one key is its score, bit for bit") {
  unit::random random(26);
  for (const index_t head_dim : head_dims) {
    const std::vector<float> query = random.floats(unit::size(head_dim), -10.0f, 10.0f);
    const std::vector<float> key = random.floats(unit::size(head_dim), -10.0f, 10.0f);
    CHECK(score_of(box_bound{}, key_box{}, query, key) == dot(query.data(), key.data(), head_dim));
  }
}

TEST_CASE("a NaN in a key or in the query makes the score NaN, so that it ranks last") {
  unit::random random(27);
  for (const index_t where : {0, 7, 8, 23}) {
    std::vector<float> query = random.floats(8);
    std::vector<float> keys = random.floats(24);
    keys[unit::size(where)] = std::numeric_limits<float>::quiet_NaN();
    CHECK(std::isnan(score_of(box_bound{}, key_box{}, query, keys)));
    CHECK(std::isnan(score_of(mean_dot{}, key_mean{}, query, keys)));
    query[unit::size(where % 8)] = 0.0f;  // zero times NaN is NaN
    CHECK(std::isnan(score_of(box_bound{}, key_box{}, query, keys)));
    query[unit::size(where % 8)] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> clean = random.floats(24);
    CHECK(std::isnan(score_of(box_bound{}, key_box{}, query, clean)));
    CHECK(std::isnan(score_of(mean_dot{}, key_mean{}, query, clean)));
  }
}

TEST_CASE("key_mass is ln of the sum of exp, of any number of keys, however far apart their logits are") {
  unit::random random(31);
  for (const index_t count : {1, 2, 15, 16, 17, 31, 257, 5000}) {
    for (const float spread : {0.0f, 1.0f, 30.0f, 1000.0f}) {
      std::vector<float> logits = random.floats(unit::size(count));
      double largest = -1e30, sum = 0;
      for (float& logit : logits) logit *= spread, largest = std::max(largest, static_cast<double>(logit));
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
      const double exact = largest + std::log(sum);
      // an exponential, a logarithm and a sum are off by some units in the last place of the result
      CHECK(key_mass{}.score(logits) == doctest::Approx(exact).epsilon(1e-6));
    }
  }
}

TEST_CASE("key_mass of infinities and of NaN") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const auto of = [](std::vector<float> logits) { return key_mass{}.score(logits); };
  CHECK(of({1.0f, infinity, -infinity}) == infinity);
  CHECK(of({-infinity, -infinity}) == -infinity);
  CHECK(of({-infinity, 2.0f}) == 2.0f);
  CHECK(std::isnan(of({1.0f, nan, 3.0f})));
  CHECK(std::isnan(of({nan, infinity})));
  CHECK(std::isnan(of({infinity, nan})));
}

}  // namespace zoomr

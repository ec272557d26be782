// SPDX-License-Identifier: Apache-2.0
// An index of 8 bits: what is kept of a summary, and what its scores are.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/policy/any_policy_of.hpp>
#include <zoomr/policy/score/box_bound.hpp>
#include <zoomr/policy/score/mean_dot.hpp>
#include <zoomr/policy/summarize/key_box.hpp>
#include <zoomr/policy/summarize/key_mean.hpp>
#include <zoomr/policy/summarize/stored_as.hpp>

#include <algorithm>  // std::max, std::partial_sort
#include <cmath>      // std::fabs, std::isnan, std::isfinite, std::ldexp, std::frexp
#include <cstring>    // std::memcpy
#include <numeric>    // std::iota
#include <set>        // std::set

namespace zoomr {

namespace {

// A scorer that a scale would change, since it says nothing of itself: what is below a half counts as that.
struct at_least_half {
  using role = zoomr::role::scorer;
  using summary = zoomr::summary::mean;

  ZOOMR_HD float term(float acc, float query, const cells<1>& mean) const {
    return fused(query, mean.row[0] < 0.5f ? 0.5f : mean.row[0], acc);
  }
  friend constexpr bool operator==(const at_least_half&, const at_least_half&) = default;
};

static_assert(homogeneous_scorer<mean_dot> && homogeneous_scorer<box_bound> && !homogeneous_scorer<at_least_half>);

/// What the index keeps of some summaries [segments, dims, rows].
template <class Summarizer, class Number>
std::vector<std::byte> kept(const std::vector<float>& numbers, index_t dims) {
  using stored = stored_summaries<Number, Summarizer>;
  const detail::any_summarizer_of<stored> summarize{stored{}};
  const index_t rows = summarize.rows;
  const std::size_t of_one = unit::size(dims * rows);
  const std::size_t bytes = of_one * summarize.number_bytes + summarize.scale_bytes;
  std::vector<std::byte> made(numbers.size() / of_one * bytes);
  for (std::size_t s = 0; s < numbers.size() / of_one; ++s) {
    summarize.store({numbers.data() + s * of_one, {dims, rows}}, made.data() + s * bytes);
  }
  return made;
}

struct read_back {
  std::vector<double> numbers;  // times their scales
  std::vector<double> scales;   // of each number
};

template <class Number>
float number_of(std::byte bits) {
  return to_float(Number{static_cast<decltype(Number::bits)>(bits)});
}

/// What these bytes say, by what the format of their numbers says.
template <class Number>
read_back meaning_of(const std::vector<std::byte>& bytes, std::size_t of_one) {
  read_back made;
  for (std::size_t at = 0; at < bytes.size(); at += of_one + 4) {
    float scale;
    std::memcpy(&scale, bytes.data() + at + of_one, 4);
    for (std::size_t i = 0; i < of_one; ++i) {
      const float number = number_of<Number>(bytes[at + i]);
      made.numbers.push_back(static_cast<double>(number) * static_cast<double>(scale));
      made.scales.push_back(static_cast<double>(scale));
    }
  }
  return made;
}

/// Numbers of any size between two powers of two, of either sign, with zeros among them.
std::vector<float> of_sizes(unit::random& random, std::size_t count, int least, int most) {
  std::vector<float> made(count);
  for (float& x : made) {
    x = std::ldexp(random.uniform(1.0f, 2.0f), random.between(least, most));
    if (random.chance(0.5)) x = -x;
    if (random.chance(0.05)) x = 0.0f;
  }
  return made;
}

// [heads, segments]
template <class Scorer, class Summarizer>
std::vector<float> scores_of(const Scorer& score, const std::byte* index, const std::vector<float>& asked, index_t dims,
                             index_t segments) {
  const detail::any_scorer_of<Scorer, Summarizer> behind{score};
  const index_t heads = static_cast<index_t>(asked.size()) / dims;
  const std::vector<votes_t> votes(unit::size(segments));
  std::vector<float> made(unit::size(heads * segments));
  behind.score({asked.data(), {heads, dims}}, index, votes, {made.data(), {heads, segments}});
  return made;
}

template <class Number>
constexpr double top = std::same_as<Number, float8> ? 448.0 : 127.0;
/// Least step between two numbers.
template <class Number>
constexpr double least_step = std::same_as<Number, float8> ? 0x1p-9 : 1.0;

constexpr std::pair<int, int> ranges[] = {{-3, 3}, {-30, 0}, {-149, -110}, {-149, 127}, {100, 127}, {0, 0}};

}  // namespace

TEST_CASE_TEMPLATE("the scale of a summary takes its largest number to the top of what 8 bits say, and never beyond", T,
                   float8, int8) {
  unit::random random(71);
  for (int i = 0; i < 300000; ++i) {
    const float largest = std::fabs(random.any_float());
    CAPTURE(largest);
    const float scale = summary_scale<T>(summary_magnitude(i % 2 == 0 ? largest : -largest));
    if (!std::isfinite(largest)) {
      REQUIRE(std::isnan(scale));
      continue;
    }
    int exponent = 0;
    REQUIRE(std::frexp(scale, &exponent) == 0.5f);
    REQUIRE(exponent > -126);
    const double scaled = static_cast<double>(largest) / static_cast<double>(scale);
    REQUIRE(scaled <= top<T>);
    REQUIRE((scaled > top<T> / 2 || scale == 0x1p-126f));
  }
  const float edges[] = {0x1.cp8f, 0x1.cp127f, 0x1.cp-100f, 0x1.fcp6f, 0x1.fcp127f, 0x1.fcp-99f, 0x1.fffffep127f};
  for (const float edge : edges) {
    for (const float largest : {std::nextafter(edge, 0.0f), edge, std::nextafter(edge, infinity)}) {
      if (!std::isfinite(largest)) continue;
      const double scaled = double{largest} / double{summary_scale<T>(summary_magnitude(largest))};
      CHECK(scaled <= top<T>);
      CHECK(scaled > top<T> / 2);
    }
  }
  CHECK(summary_scale<T>(0) == 0x1p-126f);
}

TEST_CASE_TEMPLATE("a mean in 8 bits is the nearest of all that its scale can say", T, float8, int8) {
  unit::random random(72);
  for (const auto& range : ranges) {  // not bound by names: clang's lambdas cannot use these
    const auto& least = range.first;
    const auto& most = range.second;
    CAPTURE(least);
    CAPTURE(most);
    const std::vector<float> numbers = of_sizes(random, 24 * 50, least, most);
    const read_back got = meaning_of<T>(kept<key_mean, T>(numbers, 24), 24);
    std::set<double> grid;
    for (int bits = 0; bits < 256; ++bits) {
      const float number = number_of<T>(static_cast<std::byte>(bits));
      if (std::fabs(double{number}) <= top<T>) grid.insert(static_cast<double>(number));
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto given = static_cast<double>(numbers[i]);
      const double distance = std::fabs(got.numbers[i] - given);
      const auto above = grid.lower_bound(given / got.scales[i]);
      REQUIRE(above != grid.end());
      REQUIRE(distance <= std::fabs(*above * got.scales[i] - given));
      if (above != grid.begin()) REQUIRE(distance <= std::fabs(*std::prev(above) * got.scales[i] - given));
    }
  }
}

TEST_CASE_TEMPLATE("a box in 8 bits holds what it held, by the least that its scale can say", T, float8, int8) {
  unit::random random(73);
  for (const auto& range : ranges) {  // not bound by names: clang's lambdas cannot use these
    const auto& least = range.first;
    const auto& most = range.second;
    CAPTURE(least);
    CAPTURE(most);
    std::vector<float> sides = of_sizes(random, 2 * 24 * 50, least, most);
    for (std::size_t i = 0; i < sides.size(); i += 2) {
      if (sides[i] > sides[i + 1]) std::swap(sides[i], sides[i + 1]);
    }
    const read_back got = meaning_of<T>(kept<key_box, T>(sides, 24), 48);
    for (std::size_t i = 0; i < sides.size(); ++i) {
      const auto given = static_cast<double>(sides[i]);
      const double outwards = i % 2 == 0 ? given - got.numbers[i] : got.numbers[i] - given;
      REQUIRE(outwards >= 0.0);
      REQUIRE(outwards <
              std::max(std::same_as<T, float8> ? std::fabs(given) * 0.125 : 0.0, least_step<T> * got.scales[i]) *
                  (1 + 1e-9));
    }
  }
}

TEST_CASE_TEMPLATE("a summary with a number that is infinite or NaN has no score that is a number", T, float8, int8) {
  unit::random random(74);
  for (const float bad : {infinity, -infinity, not_a_number}) {
    for (const index_t where : {0, 7, 23, 47}) {
      std::vector<float> numbers = random.floats(3 * 48);
      numbers[unit::size(48 + where)] = bad;
      const std::vector<float> asked = random.floats(24);
      const auto box =
          scores_of<box_bound, stored_summaries<T, key_box>>({}, kept<key_box, T>(numbers, 24).data(), asked, 24, 3);
      const auto mean =
          scores_of<mean_dot, stored_summaries<T, key_mean>>({}, kept<key_mean, T>(numbers, 24).data(), asked, 24, 6);
      const auto other = scores_of<at_least_half, stored_summaries<T, key_mean>>(
          {}, kept<key_mean, T>(numbers, 24).data(), asked, 24, 6);
      for (std::size_t s = 0; s < 3; ++s) CHECK(std::isnan(box[s]) == (s == 1));
      for (std::size_t s = 0; s < 6; ++s) {
        CHECK(std::isnan(mean[s]) == (s == (where < 24 ? 2u : 3u)));
        // of NaN it makes what it likes, as of floats
        if (s != (where < 24 ? 2u : 3u)) CHECK(std::isfinite(other[s]));
      }
    }
  }
}

TEST_CASE_TEMPLATE("scores of an index of 8 bits are those of a float index of what it keeps, bit for bit", T, float8,
                   int8) {
  unit::random random(75);
  const auto check = [&](const auto& score, auto summarize, index_t rows) {
    using made = decltype(summarize);
    using scorer_type = std::remove_cvref_t<decltype(score)>;
    for (const index_t dims : {8, 24, 64, 96, 128, 576}) {
      for (const index_t segments : {0, 1, 15, 16, 17, 31}) {
        for (const index_t heads : {1, 3, 4, 5}) {
          CAPTURE(dims);
          CAPTURE(segments);
          CAPTURE(heads);
          const std::vector<float> numbers = of_sizes(random, unit::size(segments * dims * rows), -20, 5);
          const auto index = kept<made, T>(numbers, dims);
          const read_back means = meaning_of<T>(index, unit::size(dims * rows));
          const std::vector<float> exact(means.numbers.begin(), means.numbers.end());
          const std::vector<float> asked = random.floats(unit::size(heads * dims), -4.0f, 4.0f);
          const auto got =
              scores_of<scorer_type, stored_summaries<T, made>>(score, index.data(), asked, dims, segments);
          const auto expected = scores_of<scorer_type, made>(score, reinterpret_cast<const std::byte*>(exact.data()),
                                                             asked, dims, segments);
          for (std::size_t i = 0; i < got.size(); ++i) REQUIRE(unit::same_bits(got[i], expected[i]));
        }
      }
    }
  };
  check(mean_dot{}, key_mean{}, 1);
  check(at_least_half{}, key_mean{}, 1);
  check(box_bound{}, key_box{}, 2);
}

TEST_CASE_TEMPLATE("a bound in 8 bits is one, however large or small the keys are", T, float8, int8) {
  unit::random random(76);
  for (const auto& [least, most] : {std::pair{-3, 3}, std::pair{-149, -80}, std::pair{-149, 100}, std::pair{80, 110}}) {
    for (int round = 0; round < 200; ++round) {
      std::vector<float> box(2 * 64);
      const std::vector<float> key = of_sizes(random, 64, least, most);
      for (std::size_t d = 0; d < 64; ++d) {
        box[2 * d] = std::min(key[d], key[d] * random.uniform(0.0f, 2.0f));
        box[2 * d + 1] = std::max(key[d], key[d] * random.uniform(0.0f, 2.0f));
      }
      const std::vector<float> asked = random.floats(64);
      double score = 0, sizes = 0;
      for (std::size_t d = 0; d < 64; ++d) {
        const double term = static_cast<double>(asked[d]) * static_cast<double>(key[d]);
        score += term, sizes += std::fabs(term);
      }
      const auto bound =
          scores_of<box_bound, stored_summaries<T, key_box>>({}, kept<key_box, T>(box, 64).data(), asked, 64, 1);
      REQUIRE(static_cast<double>(bound[0]) >= score - sizes * 8 * 0x1p-24 - 0x1p-140);
    }
  }
}

TEST_CASE_TEMPLATE("means in 8 bits shift scores by no more than is promised, and most of a choice is the same", T,
                   float8, int8) {
  unit::random random(77);
  constexpr index_t dims = 128, segments = 1000, taken = 64;
  std::int64_t found[2] = {};  // by whether some dimensions are large in all keys
  constexpr std::int64_t choices = 5 * taken;
  for (int round = 0; round < 10; ++round) {
    std::vector<float> numbers(unit::size(dims * segments));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      float sum = 0;
      for (int k = 0; k < 4; ++k) sum += random.uniform(-1.0f, 1.0f);
      numbers[i] = round % 2 == 1 && i % dims % 32 == 5 ? 8 * sum + 20.0f : sum;
    }
    const std::vector<float> asked = random.floats(dims);
    const auto scores =
        scores_of<mean_dot, key_mean>({}, reinterpret_cast<const std::byte*>(numbers.data()), asked, dims, segments);
    const auto shifted = scores_of<mean_dot, stored_summaries<T, key_mean>>({}, kept<key_mean, T>(numbers, dims).data(),
                                                                            asked, dims, segments);
    for (std::size_t s = 0; s < scores.size(); ++s) {
      double largest = 0, promised = 0;
      for (std::size_t d = 0; d < dims; ++d) largest = std::max(largest, std::fabs(double{numbers[s * dims + d]}));
      for (std::size_t d = 0; d < dims; ++d) {
        const double own = std::fabs(double{numbers[s * dims + d]});
        promised +=
            std::fabs(double{asked[d]}) *
            ((std::same_as<T, float8> ? std::max(own * 0x1p-4, largest * 0x1p-17) : largest / 127) + own * 9 * 0x1p-24);
      }
      REQUIRE(std::fabs(double{scores[s]} - double{shifted[s]}) <= promised);
    }
    const auto best = [&](const std::vector<float>& of) {
      std::vector<std::size_t> ids(of.size());
      std::iota(ids.begin(), ids.end(), std::size_t{0});
      std::partial_sort(ids.begin(), ids.begin() + taken, ids.end(),
                        [&](std::size_t a, std::size_t b) { return of[a] > of[b] || (of[a] == of[b] && a < b); });
      return std::set<std::size_t>(ids.begin(), ids.begin() + taken);
    };
    const std::set<std::size_t> chosen = best(scores);
    for (const std::size_t id : best(shifted)) found[round % 2] += chosen.count(id) > 0 ? 1 : 0;
  }
  CAPTURE(found[0]);
  CAPTURE(found[1]);
  CHECK(found[0] * 100 >= choices * 97);
  CHECK(found[1] * 100 >= choices * 92);
  CHECK(found[1] < choices);  // the rounding is seen
}

}  // namespace zoomr

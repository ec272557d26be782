// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <support/device_memory.hpp>
#include <support/mutations.hpp>
#include <support/row_top_k.cuh>

#include <algorithm>  // std::stable_sort, std::sort

namespace zoomr {

namespace {

votes_t key_of(votes_t score) { return score; }
votes_t key_of(float score) { return order_key(score); }

/// The best k ids of one row, ascending, by a stable sort.
template <class Score>
std::vector<index_t> sorted_best(const Score* row, index_t n, index_t k) {
  std::vector<index_t> ids;
  for (index_t id = 0; id < n; ++id) {
    if (key_of(row[id]) != not_eligible) ids.push_back(id);
  }
  std::stable_sort(ids.begin(), ids.end(), [&](index_t a, index_t b) { return key_of(row[a]) > key_of(row[b]); });
  if (static_cast<index_t>(ids.size()) > k) ids.resize(unit::size(k));
  std::sort(ids.begin(), ids.end());
  return ids;
}

/// Ids of each row, and how many of them were taken.
struct best_of_rows {
  std::vector<index_t> ids;
  std::vector<index_t> counts;
};

template <class Score>
best_of_rows by_sorting(const std::vector<Score>& scores, index_t rows, index_t n, index_t k) {
  best_of_rows made;
  for (index_t row = 0; row < rows; ++row) {
    std::vector<index_t> ids = sorted_best(scores.data() + std::ptrdiff_t{row} * n, n, k);
    made.counts.push_back(static_cast<index_t>(ids.size()));
    ids.resize(unit::size(k), -1);
    made.ids.insert(made.ids.end(), ids.begin(), ids.end());
  }
  return made;
}

template <class Score>
best_of_rows on_device(const std::vector<Score>& scores, index_t rows, index_t n, index_t k) {
  zoomr_test::device_array<Score> in(scores);
  zoomr_test::device_array<index_t> ids(std::int64_t{rows} * k, -7);
  zoomr_test::device_array<index_t> counts(rows, -7);
  zoomr_test::launch_top_k(view<const Score, 2>(in.data(), {rows, n}), view<index_t, 2>(ids.data(), {rows, k}),
                           counts.view(), stream_ref{});
  return {ids.values(), counts.values()};
}

template <class Score>
bool right(const std::vector<Score>& scores, index_t rows, index_t n, index_t k) {
  const best_of_rows made = on_device(scores, rows, n, k);
  const best_of_rows expected = by_sorting(scores, rows, n, k);
  return made.counts == expected.counts && made.ids == expected.ids;
}

constexpr int looks = 8;

/// Votes of many looks: votes, mass, ties only, signs mixed, extremes, keys that differ in the last bits only.
votes_t random_votes(unit::random& random, int look) {
  switch (look) {
    case 0:
      return random.chance(0.1) ? not_eligible : random.below(6);
    case 1:
      return static_cast<votes_t>(random.bits() >> 20);
    case 2:
      return 3;
    case 3:
      return static_cast<votes_t>(random.bits());
    case 4:
      return random.chance(0.5) ? std::numeric_limits<votes_t>::max() : not_eligible + 1 + random.below(2);
    case 5:
      return (votes_t{0x1234567} << 32) + random.below(5);
    case 6:
      return random.chance(0.5) ? not_eligible : -random.below(3);
    default:
      return not_eligible;
  }
}
float random_float(unit::random& random, int look) {
  const float odd[] = {not_a_number, infinity, -infinity, 0.0f, -0.0f, 1.0f};
  switch (look) {
    case 0:
      return random.any_float();
    case 1:
      return odd[random.below(6)];
    case 2:
      return 1.5f;
    case 3:
      return random.chance(0.01) ? 50.0f : random.uniform(-1.0f, 1.0f);
    case 4:
      return random.chance(0.9) ? not_a_number : random.any_float();
    case 5:
      return static_cast<float>(random.below(4)) - 2.0f;
    case 6:
      return 1.0f + static_cast<float>(random.below(3)) * 0x1p-23f;
    default:
      return not_a_number;
  }
}

/// Rows of all looks in turn, beginning with number `seed`.
template <class Score, class Make>
bool right(index_t rows, index_t n, index_t k, std::uint64_t seed, Make make) {
  unit::random random(seed);
  std::vector<Score> scores;
  for (index_t row = 0; row < rows; ++row) {
    for (index_t id = 0; id < n; ++id) scores.push_back(make(random, (row + static_cast<int>(seed)) % looks));
  }
  return right(scores, rows, n, k);
}
bool right_votes(index_t rows, index_t n, index_t k, std::uint64_t seed) {
  return right<votes_t>(rows, n, k, seed, random_votes);
}
bool right_floats(index_t rows, index_t n, index_t k, std::uint64_t seed) {
  return right<float>(rows, n, k, seed, random_float);
}

}  // namespace

TEST_CASE("the best k of a row are those of a stable sort, whatever the size and the ties") {
  std::uint64_t seed = 0;
  zoomr_test::in_all_orders([&](const std::string& order) {
    CAPTURE(order);
    for (const index_t n : {0, 1, 2, 15, 16, 17, 255, 256, 257, 1021}) {
      for (const index_t k : {0, 1, n / 2, n, n + 3}) {
        ++seed;
        CAPTURE(n);
        CAPTURE(k);
        CAPTURE(seed);
        REQUIRE(right_votes(1, n, k, seed));
        REQUIRE(right_floats(1, n, k, seed));
      }
    }
  });
}

TEST_CASE("rows of 4,096 and 65,536 too") {
  CHECK(right_votes(looks, 4096, 100, 0));
  CHECK(right_floats(looks, 4096, 2048, 0));
  CHECK(right_floats(1, 65536, 1000, 0));
  CHECK(right_votes(1, 65536, 30000, 0));
}

TEST_CASE("rows of floats that begin anywhere, with ends of any size") {
  for (const index_t n : {1, 3, 9, 1021, 4099, 5006}) {
    for (const index_t k : {1, 17, n / 3, n - 1}) {
      CAPTURE(n);
      CAPTURE(k);
      CHECK(right_floats(looks, n, k, static_cast<std::uint64_t>(n) * looks));
    }
  }
}

TEST_CASE("no rows, and outputs that do not fit them") {
  CHECK(right<votes_t>({}, 0, 5, 2));
  zoomr_test::device_array<index_t> ids(4, -7);
  zoomr_test::device_array<index_t> counts(1, -7);
  const view<const float, 2> two_rows(nullptr, {2, 0});
  CHECK_THROWS_AS(zoomr_test::launch_top_k(two_rows, view<index_t, 2>(ids.data(), {2, 2}), counts.view(), stream_ref{}),
                  precondition_error);
}

TEST_CASE("no barrier of a walk can be left out") {
  CHECK(zoomr_test::barriers_not_missed([] { return right_votes(3, 300, 20, 0); }) == std::vector<std::string>{});
  CHECK(zoomr_test::barriers_not_missed([] { return right_floats(3, 4321, 200, 0); }) == std::vector<std::string>{});
}

}  // namespace zoomr

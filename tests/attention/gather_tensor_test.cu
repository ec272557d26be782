// SPDX-License-Identifier: Apache-2.0
// gather_attend on tensor cores: queries of 16 bits, groups of 2 and more.
#include <doctest/doctest.h>

#include <cmath>    // std::ldexp
#include <string>   // std::string
#include <utility>  // std::index_sequence
#include <vector>   // std::vector

#include "attention/gathering.hpp"
#include "support/mutations.hpp"
#include "support/nightly.hpp"
#include "support/stride.hpp"

namespace {

using namespace zoomr_test;
using namespace zoomr_test::gathering;
using zoomr::bfloat16;
using zoomr::fits_tensor_cores;
using zoomr::float16;
using zoomr::float8;
using zoomr::index_t;
using zoomr::int8;

static_assert(fits_tensor_cores<bfloat16, bfloat16, 128, 8>() && fits_tensor_cores<float16, float16, 64, 16>());
static_assert(fits_tensor_cores<bfloat16, bfloat16, 128, 2>() && fits_tensor_cores<float8, bfloat16, 96, 12>() &&
              fits_tensor_cores<int8, float16, 256, 8>());
// one head, numbers that are not exact in the type of queries, head_dims that tiles do not divide
static_assert(!fits_tensor_cores<bfloat16, bfloat16, 128, 1>() && !fits_tensor_cores<bfloat16, float, 128, 8>());
static_assert(!fits_tensor_cores<float, bfloat16, 128, 8>() && !fits_tensor_cores<float16, bfloat16, 128, 8>());
static_assert(!fits_tensor_cores<bfloat16, bfloat16, 80, 8>() && !fits_tensor_cores<bfloat16, bfloat16, 192, 8>());

/// What eight lanes read at once from a tile lies in different banks, or is the same piece.
template <class T, index_t HeadDim, class Values = zoomr::values_apart<HeadDim>>
constexpr bool banks_differ() {
  using warp = zoomr::tensor_warp<T, bfloat16, HeadDim, 8, Values>;
  const auto place = [](index_t lane, index_t numbers, bool of_keys) {
    const index_t row = lane / 4;
    const index_t column = lane % 4 * 2;
    const index_t token = of_keys ? warp::of_eight(row) : warp::of_eight(column);
    const index_t of_row = of_keys ? warp::layout::pieces : warp::layout::value_row;
    return warp::layout::place(of_row, token, (of_keys ? lane % 4 : row) * numbers / warp::per_piece);
  };
  for (index_t lane = 0; lane < 32; ++lane) {
    for (index_t other = lane / 8 * 8; other < lane; ++other) {
      for (const bool of_keys : {true, false}) {
        const index_t numbers = of_keys ? warp::key_numbers : warp::value_numbers;
        const index_t a = place(lane, numbers, of_keys);
        const index_t b = place(other, numbers, of_keys);
        if (a != b && a % 8 == b % 8) return false;
      }
    }
  }
  return true;
}
static_assert(banks_differ<bfloat16, 64>() && banks_differ<bfloat16, 96>() && banks_differ<bfloat16, 128>());
static_assert(banks_differ<bfloat16, 256>() && banks_differ<float8, 64>() && banks_differ<float8, 96>());
static_assert(banks_differ<float8, 128>() && banks_differ<float8, 256>());
static_assert(banks_differ<bfloat16, 192, zoomr::values_apart<128>>() &&
              banks_differ<bfloat16, 576, zoomr::values_in_keys<512>>() &&
              banks_differ<float8, 576, zoomr::values_in_keys<512>>());

// around the tiles of 16, 32 and 64 tokens
const std::vector<index_t> tile_edges{0, 1, 15, 16, 17, 31, 33, 63, 65, 131, 300};

template <class T, class Number>
void check_head_dims(problem p) {
  p.attended = tile_edges;
  p.group = 8;
  check<96, 8, T, Number>(p);
  check<128, 8, T, Number>(p);
  p.group = 16;
  p.splits = 3;
  p.seed = 2;
  check<64, 16, T, Number>(p);
  check<128, 16, T, Number>(p);
  p.kv_heads = 1;
  check<256, 16, T, Number>(p);
}

/// A problem whose keys and values are stored in units of these.
problem stored_in(float key_scale, float value_scale) {
  problem p;
  p.key_scale = key_scale;
  p.value_scale = value_scale;
  return p;
}

TEST_CASE("tensor cores: attention is that of the reference, for each type and head_dim") {
  check_head_dims<bfloat16, bfloat16>({});
  check_head_dims<float16, float16>({});
  check_head_dims<float8, bfloat16>(stored_in(0.25f, 2.0f));
  check_head_dims<float8, float16>({});
  check_head_dims<int8, bfloat16>(stored_in(0.01f, 0.02f));
  check_head_dims<int8, float16>(stored_in(0.01f, 0.02f));
}
TEST_CASE("tensor cores: other groups, and rows with fewer heads than they may have") {
  check<128, 12, bfloat16, bfloat16>({.group = 12, .attended = tile_edges});
  check<64, 9, bfloat16, bfloat16>({.group = 9, .attended = tile_edges, .splits = 2});
  check<64, 16, bfloat16, bfloat16>({.group = 11, .attended = tile_edges, .splits = 2});
  check<64, 16, float8, bfloat16>({.group = 3, .attended = tile_edges});
  check<64, 24, bfloat16, bfloat16>(
      {.group = 24, .kv_heads = 1, .attended = tile_edges, .splits = 2});                 // two blocks of heads
  check<64, 32, bfloat16, bfloat16>({.group = 16, .attended = tile_edges, .splits = 2});  // the second has none
}
/// Of every head_dim that models have, by night; else of one.
template <index_t Group>
void check_group() {
  constexpr index_t dims[] = {64, 80, 96, 128, 256};
  const problem p{.group = Group, .attended = {0, 1, 17, 300}, .splits = 1 + Group % 3, .seed = Group};
  check<dims[Group % 5], Group, bfloat16, bfloat16>(p);
  ZOOMR_NIGHTLY(check<dims[(Group + 1) % 5], Group, bfloat16, bfloat16>(p));
  ZOOMR_NIGHTLY(check<dims[(Group + 2) % 5], Group, bfloat16, bfloat16>(p));
  ZOOMR_NIGHTLY(check<dims[(Group + 3) % 5], Group, bfloat16, bfloat16>(p));
  ZOOMR_NIGHTLY(check<dims[(Group + 4) % 5], Group, bfloat16, bfloat16>(p));
}
TEST_CASE("groups of 1 to 16 heads, on tensor cores and, of 80 dimensions or one head, without") {
  [&]<std::size_t... G>(std::index_sequence<G...>) { (check_group<static_cast<index_t>(G) + 1>(), ...); }
  (std::make_index_sequence<16>());
}
TEST_CASE("tensor cores: split over blocks") {
  for (const index_t splits : {2, 7}) {
    check<128, 8, bfloat16, bfloat16>({.group = 8, .kv_heads = 1, .attended = tile_edges, .splits = splits});
    check<64, 16, int8, bfloat16>({.group = 16, .attended = tile_edges, .splits = splits, .key_scale = 0.01f});
    check<128, 8, bfloat16, bfloat16>({.group = 8, .kv_heads = 1, .attended = {1000, 129, 128}, .splits = splits});
  }
}
TEST_CASE("tensor cores: peaked logits, ties and capped ones") {
  for (const index_t splits : some_of<index_t>({1, 3})) {
    check<64, 8, bfloat16, bfloat16>({.group = 8, .attended = tile_edges, .splits = splits, .look = kind::peaked});
    check<128, 16, float16, float16>({.group = 16, .attended = tile_edges, .splits = splits, .look = kind::peaked});
    check<64, 8, bfloat16, bfloat16>({.group = 8, .attended = tile_edges, .splits = splits, .look = kind::ties});
    check<64, 8, bfloat16, bfloat16>({.group = 8, .attended = tile_edges, .splits = splits, .cap = 1.5f});
    check<128, 16, float8, bfloat16>({.group = 16, .attended = tile_edges, .splits = splits, .cap = 5.0f});
  }
}
TEST_CASE("tensor cores: sinks, with and without a cap") {
  for (const index_t splits : some_of<index_t>({1, 3})) {
    check<64, 8, bfloat16, bfloat16, true>({.group = 8, .attended = tile_edges, .splits = splits});
    check<64, 8, bfloat16, bfloat16, true>({.group = 8, .attended = tile_edges, .splits = splits, .cap = 1.5f});
  }
}
TEST_CASE("tensor cores: NaN and infinities reach the outputs that they reach in books, and no others") {
  for (const index_t splits : some_of<index_t>({1, 3})) {
    check<64, 8, bfloat16, bfloat16>(
        {.group = 8, .attended = tile_edges, .splits = splits, .look = kind::with_infinities});
    check<128, 8, float16, float16>(
        {.group = 8, .attended = tile_edges, .splits = splits, .look = kind::with_infinities});
  }
}

/// Queries of zeros make all weights 1: sums of small integers over a power of two tokens are exact, whatever the
/// order.
template <index_t HeadDim, class T, class Number>
void check_means(index_t splits) {
  scene<T, Number> s({.head_dim = HeadDim,
                      .group = 8,
                      .attended = {1, 2, 4, 8, 16, 32, 64, 128, 256},
                      .splits = splits,
                      .look = kind::integers});
  for (Number& number : s.queries) number = {};
  rows_by_ranges<T, Number> rows(s);
  const answer got = attend<HeadDim, 8>(s, rows.list());
  for (std::size_t i = 0; i < got.out.size(); ++i) {
    const auto row = static_cast<index_t>(i) / HeadDim;
    const index_t t = row / s.heads;
    float sum = 0.0f;
    for (const index_t slot : s.slots[static_cast<std::size_t>(t)]) {
      sum += to_float(s.held.at(slot, true, row % s.heads / 8)[i % std::size_t{HeadDim}]);
    }
    const float mean = sum / static_cast<float>(s.slots[static_cast<std::size_t>(t)].size());
    CAPTURE(i);
    REQUIRE(got.out[i] == to_float(from_float<Number>(mean)));
  }
}

TEST_CASE("tensor cores: what is exact stays exact") {
  for (const index_t splits : some_of<index_t>({1, 3})) {
    check_means<64, bfloat16, bfloat16>(splits);
    check_means<96, float16, float16>(splits);
    check_means<96, float8, bfloat16>(splits);
    check_means<128, int8, bfloat16>(splits);
    check_means<256, bfloat16, bfloat16>(splits);
  }
}

/// out and lse with all queries times 2^power, and logits times 2^-power.
template <class T>
answer rescaled(int power) {
  const float scale = std::ldexp(0.125f, -power);
  scene<T, bfloat16> s({.group = 8, .attended = tile_edges, .splits = 2, .scale = scale, .key_scale = 0.25f});
  for (std::size_t i = 0; i < s.queries.size(); ++i) {
    float number = std::ldexp(to_float(s.queries[i]), power);
    if (i / 64 % 8 == 3) number = 0.0f;                                           // a head that asks for nothing
    if (i / 64 % 8 == 5) number = std::ldexp(number, -static_cast<int>(i % 16));  // numbers of all sizes
    s.queries[i] = from_float<bfloat16>(number);
  }
  rows_by_ranges<T, bfloat16> rows(s);
  return attend<64, 8>(s, rows.list());
}

TEST_CASE("tensor cores: with keys of 8 bits, queries of any size ask for the same") {
  for (const int power : {-100, -40, 40, 100}) {
    INFO("2^", power);
    CHECK(bits(rescaled<float8>(power)) == bits(rescaled<float8>(0)));
    CHECK(bits(rescaled<int8>(power)) == bits(rescaled<int8>(0)));
  }
}
TEST_CASE("tensor cores: with keys of 8 bits, NaN and infinities of queries reach their heads' outputs and no others") {
  scene<float8, bfloat16> s({.group = 8, .attended = {33, 5}});
  const std::vector<bfloat16> plain = s.queries;
  rows_by_ranges<float8, bfloat16> rows(s);
  const answer expected = attend<64, 8>(s, rows.list());
  for (const float odd : {not_a_number, infinity, -infinity}) {
    s.queries = plain;
    s.queries[64 * 3 + 11] = from_float<bfloat16>(odd);
    const answer got = attend<64, 8>(s, rows.list());
    for (std::size_t i = 0; i < got.out.size(); ++i) {
      CAPTURE(i);
      if (i / 64 == 3) {
        REQUIRE(got.out[i] != got.out[i]);
      } else {
        REQUIRE(got.out[i] == expected.out[i]);
      }
    }
  }
}

TEST_CASE("tensor cores: the order of threads and blocks changes no bit, and no barrier can be left out") {
  scene<bfloat16, bfloat16> s({.head_dim = 128, .group = 8, .kv_heads = 1, .attended = {300, 1, 70}, .splits = 3});
  rows_by_ranges<bfloat16, bfloat16> rows(s);
  const answer first = attend<128, 8>(s, rows.list());
  const auto same = [&] { return bits(attend<128, 8>(s, rows.list())) == bits(first); };
  in_all_orders([&](const std::string& order) {
    INFO(order);
    CHECK(same());
  });
  // the one in comes_last() orders what other threads have written to global memory, which the shim does not watch
  CHECK(barriers_not_missed(same).size() == 1);
}

}  // namespace

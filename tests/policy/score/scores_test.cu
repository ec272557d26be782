// SPDX-License-Identifier: Apache-2.0
#include <zoomr/policy/query/last_query.hpp>
#include <zoomr/policy/query/running_mean.hpp>
#include <zoomr/policy/score/box_bound.hpp>
#include <zoomr/policy/score/key_mass.cuh>
#include <zoomr/policy/score/mean_dot.hpp>

#include <doctest/doctest.h>

#include <cmath>    // std::ldexp
#include <cstring>  // std::memcmp
#include <vector>   // std::vector

#include "support/device_memory.hpp"
#include "support/inputs.hpp"
#include "support/mutations.hpp"
#include "support/score_kernel.cuh"

namespace {

using namespace zoomr;
using zoomr_test::device_array;
using zoomr_test::dice;

template <class Summary>
struct listed_rows {
  using number = float;
  using summary = Summary;

  view<const row_to_score<float, Summary>> rows;
  index_t count = 0;
  ZOOMR_HD row_to_score<float, Summary> at(index_t i) const { return rows[i]; }
};

template <class T>
std::vector<T> stored(const std::vector<float>& numbers) {
  std::vector<T> made;
  for (const float x : numbers) made.push_back(from_float<T>(x));
  return made;
}

std::vector<float> floats(std::int64_t count, dice& random) {
  std::vector<float> made(static_cast<std::size_t>(count));
  for (float& x : made) x = static_cast<float>(random.between(-1000000, 1000000)) / 300000.0f;
  for (std::size_t i = 0; i < made.size(); i += 97) made[i] = i % 2 == 0 ? 0.0f : -0.0f;
  if (made.size() > 700) made[601] = not_a_number, made[602] = infinity, made[643] = -infinity;
  return made;
}

// The larger of the products with the two sides of a box.
struct larger_side {
  using role = zoomr::role::scorer;
  using summary = zoomr::summary::box;
  static constexpr index_t sums = 2;

  ZOOMR_HD score_sums<2> term(const score_sums<2>& acc, float query, const cells<2>& box) const {
    return {{fused(query, box.row[0], acc.at[0]), fused(query, box.row[1], acc.at[1])}};
  }
  ZOOMR_HD float finish(const score_sums<2>& of) const { return of.at[0] < of.at[1] ? of.at[1] : of.at[0]; }
  friend constexpr bool operator==(const larger_side&, const larger_side&) = default;
};

static_assert(scorer<larger_side> && larger_side{} == larger_side{});

// One that may be multiplied by a summary's scale.
struct larger_side_scaled : larger_side {
  static constexpr bool homogeneous = true;
  friend constexpr bool operator==(const larger_side_scaled&, const larger_side_scaled&) = default;
};

static_assert(larger_side_scaled::homogeneous && larger_side_scaled{} == larger_side_scaled{});
static_assert(homogeneous_scorer<larger_side_scaled> && !homogeneous_scorer<larger_side>);

// The product with one side.
template <index_t Side>
struct one_side {
  using summary = zoomr::summary::box;
  float term(float acc, float query, const cells<2>& box) const { return fused(query, box.row[Side], acc); }
};

// The order of summation as math/dot.hpp describes it, written out.
// @param scale  of the numbers
template <class Scorer, class Summary>
float by_hand(const Scorer& scorer, const std::vector<float>& asked, std::size_t head, const Summary* summary,
              index_t head_dim, float scale) {
  constexpr index_t rows = Scorer::summary::rows;
  std::vector<float> partial(32, 0.0f);
  for (index_t d = 0; d < head_dim; ++d) {
    cells<rows> c;
    for (index_t r = 0; r < rows; ++r) c.row[r] = to_float(summary[summary_place(head_dim, d) * rows + r]) * scale;
    float& sum = partial[static_cast<std::size_t>(d % 32)];
    sum = scorer.term(sum, asked[head * static_cast<std::size_t>(head_dim) + static_cast<std::size_t>(d)], c);
  }
  for (std::size_t half = 16; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) partial[l] += partial[l + half];
  }
  return partial[0];
}

template <class Summary>
float by_hand(const larger_side& scorer, const std::vector<float>& asked, std::size_t head, const Summary* summary,
              index_t head_dim, float scale) {
  return scorer.finish({{by_hand(one_side<0>{}, asked, head, summary, head_dim, scale),
                         by_hand(one_side<1>{}, asked, head, summary, head_dim, scale)}});
}
template <class Summary>
float by_hand(const larger_side_scaled& scorer, const std::vector<float>& asked, std::size_t head,
              const Summary* summary, index_t head_dim, float scale) {
  return by_hand(static_cast<const larger_side&>(scorer), asked, head, summary, head_dim, scale);
}

// Scales of summaries: powers of two of any size, and one that is no number.
std::vector<float> scales_for(index_t count, dice& random) {
  std::vector<float> made(static_cast<std::size_t>(count));
  for (float& scale : made) scale = std::ldexp(1.0f, random.between(-126, 120));
  for (std::size_t i = 5; i < made.size(); i += 29) made[i] = not_a_number;
  return made;
}

bool same_bits(float a, float b) { return (a != a && b != b) || std::memcmp(&a, &b, sizeof a) == 0; }

// False if a score differs.
template <index_t Group, index_t HeadDim, class Summary = float, class QuerySource, class Scorer>
bool right(QuerySource query_source, Scorer scorer, index_t heads, index_t segments, index_t blocks) {
  constexpr index_t head_dim = HeadDim;
  constexpr index_t rows = Scorer::summary::rows;
  dice random(static_cast<std::uint64_t>(heads * 1000 + segments));
  const std::int64_t numbers = std::int64_t{heads} * head_dim;
  device_array<float> queries(floats(2 * numbers, random));
  device_array<float> sums(floats(2 * numbers, random));
  device_array<Summary> summaries(stored<Summary>(floats(2 * std::int64_t{segments} * head_dim * rows, random)));
  device_array<float> scales(scales_for(2 * segments, random));
  device_array<float> scores(2 * std::int64_t{heads} * segments, 77.0f);
  std::vector<row_to_score<float, Summary>> made;
  for (index_t r = 0; r < 2; ++r) {
    made.push_back({view<const float, 2>(queries.data() + r * numbers, {heads, head_dim}),
                    view<const float, 2>(sums.data() + r * numbers, {heads, head_dim}), 3 + r,
                    summaries.data() + std::int64_t{r} * segments * head_dim * rows, segments,
                    view<float, 2>(scores.data() + std::int64_t{r} * heads * segments, {heads, segments}),
                    scales_summaries<Summary> ? scales.data() + std::int64_t{r} * segments : nullptr});
  }
  device_array<row_to_score<float, Summary>> listed(made);
  zoomr_test::score_segments<Group, HeadDim>(query_source, scorer, listed_rows<Summary>{listed.view(), 2}, blocks,
                                             zoomr::stream_ref{});
  const auto got = scores.values();
  const auto held = summaries.values();
  const auto held_scales = scales.values();
  const auto own = queries.values();
  const auto summed = sums.values();
  for (index_t r = 0; r < 2; ++r) {
    std::vector<float> asked;
    for (std::int64_t i = 0; i < numbers; ++i) {
      const auto at = static_cast<std::size_t>(r * numbers + i);
      asked.push_back(query_source.query(own[at], QuerySource::sums ? summed[at] : 0.0f, 3 + r));
    }
    for (index_t h = 0; h < heads; ++h) {
      for (index_t s = 0; s < segments; ++s) {
        const Summary* summary = held.data() + (std::int64_t{r} * segments + s) * head_dim * rows;
        const float scale = held_scales[static_cast<std::size_t>(r * segments + s)];
        const bool scales_score = scales_summaries<Summary> && homogeneous_scorer<Scorer>;
        const bool scales_numbers = scales_summaries<Summary> && !homogeneous_scorer<Scorer>;
        const float expected =
            by_hand(scorer, asked, static_cast<std::size_t>(h), summary, head_dim, scales_numbers ? scale : 1.0f) *
            (scales_score ? scale : 1.0f);
        if (!same_bits(got[static_cast<std::size_t>((r * heads + h) * segments + s)], expected)) return false;
      }
    }
  }
  return true;
}

template <index_t Group, index_t HeadDim, class Summary = float, class QuerySource, class Scorer>
void check(QuerySource query_source, Scorer scorer, index_t heads, index_t segments, index_t blocks) {
  INFO("heads ", heads, ", head_dim ", HeadDim, ", segments ", segments, ", blocks ", blocks);
  CHECK(right<Group, HeadDim, Summary>(query_source, scorer, heads, segments, blocks));
}

/// Logits that are there already.
struct listed_logits {
  view<const float> all;
  __device__ float make(index_t first) const {
    const index_t i = first + static_cast<index_t>(threadIdx.x) % warp_lanes;
    return all[i < all.size() ? i : all.size() - 1];
  }
  __device__ float again(index_t first) const { return make(first); }
};

__global__ void key_mass_kernel(view<const float> logits, float* score) {
  listed_logits listed{logits};
  const float mass = score_keys(key_mass{}, logits.size(), listed);
  if (threadIdx.x == 7) *score = mass;  // all lanes have it
}

}  // namespace

TEST_CASE("scores have the bits of the contract's order, for each number of heads, dimensions and segments") {
  for (const zoomr::index_t segments : {0, 1, 2, 7, 31, 32, 33, 130}) {
    check<1, 64>(last_query{}, mean_dot{}, 1, segments, 1);
    check<2, 8>(last_query{}, box_bound{}, 2, segments, 2);
    check<4, 96>(running_mean{}, mean_dot{}, 3, segments, 1);
    check<4, 128>(last_query{}, mean_dot{}, 4, segments, 3);
    check<8, 40>(running_mean{}, box_bound{}, 8, segments, 2);
    check<16, 256>(last_query{}, mean_dot{}, 16, segments, 1);
    check<4, 128, bfloat16>(running_mean{}, mean_dot{}, 4, segments, 2);
    check<4, 96, float16>(last_query{}, box_bound{}, 3, segments, 1);
    check<32, 72>(last_query{}, mean_dot{}, 29, segments, 2);
  }
}

TEST_CASE("a score may be made of several sums, each in the contract's order") {
  for (const zoomr::index_t segments : {0, 1, 7, 32, 33, 130}) {
    check<1, 64>(last_query{}, larger_side{}, 1, segments, 1);
    check<4, 96>(running_mean{}, larger_side{}, 3, segments, 2);
    check<8, 40, float16>(last_query{}, larger_side{}, 8, segments, 1);
    check<32, 72>(last_query{}, larger_side{}, 29, segments, 2);
  }
}

TEST_CASE("an index of 8 bits: scores are multiplied by the scales of summaries, or their numbers are") {
  for (const zoomr::index_t segments : {0, 1, 7, 31, 32, 33, 130}) {
    check<1, 8, float8>(last_query{}, mean_dot{}, 1, segments, 1);     // a number at a time, some lanes have none
    check<2, 32, float8>(last_query{}, mean_dot{}, 2, segments, 1);    // one
    check<4, 64, float8>(running_mean{}, mean_dot{}, 4, segments, 2);  // pairs
    check<4, 192, float8>(last_query{}, mean_dot{}, 3, segments, 1);   // three pairs
    check<4, 128, float8>(running_mean{}, mean_dot{}, 4, segments, 3);
    check<8, 128, float8>(last_query{}, box_bound{}, 8, segments, 2);
    check<2, 256, float8>(last_query{}, box_bound{}, 2, segments, 1);
    check<8, 40, float8>(running_mean{}, box_bound{}, 5, segments, 1);
    check<4, 64, float8>(last_query{}, larger_side{}, 3, segments, 1);
    check<4, 72, float8>(last_query{}, larger_side{}, 3, segments, 1);
    check<4, 128, float8>(last_query{}, larger_side_scaled{}, 4, segments, 2);
    check<4, 128, int8>(running_mean{}, mean_dot{}, 4, segments, 3);
    check<4, 64, int8>(last_query{}, mean_dot{}, 4, segments, 1);
    check<8, 40, int8>(running_mean{}, box_bound{}, 5, segments, 1);
  }
}

TEST_CASE("a row without a block is refused, and one with too many") {
  device_array<row_to_score<float>> none(std::vector<row_to_score<float>>(1));
  const listed_rows<float> rows{none.view(), 1};
  const auto score = [&](index_t blocks) {
    zoomr_test::score_segments<4, 64>(last_query{}, mean_dot{}, rows, blocks, zoomr::stream_ref{});
  };
  CHECK_THROWS_AS(score(0), precondition_error);
  CHECK_THROWS_AS(score(65536), precondition_error);
}

TEST_CASE("in any order of threads, and no barrier can be left out") {
  const auto body = [] { return right<4, 96>(running_mean{}, box_bound{}, 4, 33, 2); };
  zoomr_test::in_all_orders([&](const std::string&) { CHECK(body()); });
  CHECK(zoomr_test::barriers_not_missed(body) == std::vector<std::string>{});
}

TEST_CASE("a warp makes the mass of a segment's keys with the host's bits, of infinities and NaN too") {
  dice random(5);
  for (const zoomr::index_t keys : {1, 2, 31, 32, 33, 64, 300, 1025}) {
    for (int turn = 0; turn < 12; ++turn) {
      std::vector<float> logits;
      for (zoomr::index_t i = 0; i < keys; ++i) logits.push_back(static_cast<float>(random.between(-900, 900)) / 30.0f);
      float& odd = logits[static_cast<std::size_t>(random.between(0, keys - 1))];
      if (turn == 1) odd = not_a_number;
      if (turn == 2) odd = infinity;
      if (turn == 3) odd = -infinity;
      if (turn == 4) odd = 3e38f;
      if (turn == 5) logits.assign(logits.size(), -infinity);
      if (turn == 6) logits.assign(logits.size(), -0.0f);
      if (turn == 7) logits.assign(logits.size(), not_a_number);
      device_array<float> there(logits), score(1, 77.0f);
      launch({dim3(1), dim3(32)}, zoomr::stream_ref{}, key_mass_kernel, view<const float>(there.view()), score.data());
      const float expected = key_mass{}.score(view<float>(logits)), got = score.values()[0];
      CAPTURE(keys);
      CAPTURE(turn);
      CHECK((is_nan(expected) ? is_nan(got) : std::memcmp(&got, &expected, sizeof got) == 0));
    }
  }
}

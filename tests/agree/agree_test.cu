// SPDX-License-Identifier: Apache-2.0
// Every consensus on the device gives the tallies of its host twin, bit for bit.
#include <zoomr/agree/head_mass.cuh>
#include <zoomr/agree/head_votes.cuh>
#include <zoomr/agree/pooled_mass.cuh>
#include <zoomr/agree/pooled_score.cuh>

#include <doctest/doctest.h>

#include <vector>  // std::vector

#include "support/device_memory.hpp"
#include "support/inputs.hpp"
#include "support/mutations.hpp"

namespace {

using namespace zoomr;
using zoomr::index;
using zoomr_test::device_array;
using zoomr_test::dice;

template <class Consensus>
__global__ void agree_kernel(Consensus rule, agreeing in) {
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  agree(rule, in, block);
}

struct inputs {
  std::vector<float> scores;
  std::vector<index> tokens;
  std::vector<tally> tallies;
};

// Scores of every kind; some segments have nothing left, some tallies are not zero before.
inputs made(index heads, index segments, dice& random) {
  inputs in;
  const float odd[] = {not_a_number, infinity, -infinity, 0.0f, -0.0f, 1e30f, -1e30f};
  const bool ties = random.chance(30);
  const bool peaked = random.chance(30);
  for (index i = 0; i < heads * segments; ++i) {
    float score = static_cast<float>(random.between(-4000, 4000)) / (peaked ? 10.0f : 500.0f);
    if (ties) score = static_cast<float>(random.between(-2, 2));
    if (random.chance(2)) score = random.one_of(odd);
    in.scores.push_back(score);
  }
  const bool none = random.chance(5);
  for (index id = 0; id < segments; ++id) {
    in.tokens.push_back(random.between(1, 900));
    in.tallies.push_back(none || random.chance(15) ? not_eligible : random.chance(50) ? 0 : random.between(0, 99));
  }
  return in;
}

template <class Consensus>
bool right(Consensus rule, index heads, index segments, index threads, std::uint64_t seed) {
  dice random(seed);
  inputs in = made(heads, segments, random);
  device_array<float> scores(in.scores);
  device_array<index> tokens(in.tokens);
  device_array<tally> tallies(in.tallies);
  const index head_dim = 64;
  const agreeing given{view<const float, 2>(scores.data(), {heads, segments}), view<const index>(tokens.view()),
                       head_dim, tallies.view()};
  launch({dim3(1), dim3(static_cast<unsigned>(threads))}, zoomr::stream{}, agree_kernel<Consensus>, rule, given);
  std::vector<index> order(in.tokens.size());
  rule.add(view<const float, 2>(in.scores.data(), {heads, segments}), view<const index>(in.tokens), head_dim,
           view<tally>(in.tallies), view<index>(order));
  return tallies.values() == in.tallies;
}

template <class Consensus>
void check_sizes(Consensus rule) {
  std::uint64_t seed = 1;
  for (const zoomr::index segments : {1, 2, 31, 32, 33, 64, 65, 257, 1031}) {
    for (const zoomr::index heads : {1, 4, 7}) {
      for (const zoomr::index threads : {32, 128, 256}) CHECK(right(rule, heads, segments, threads, ++seed));
    }
  }
}

}  // namespace

TEST_CASE("votes") {
  check_sizes(head_votes{});
  check_sizes(head_votes{.k = 1});
  check_sizes(head_votes{.k = 40});
}
TEST_CASE("mass") { check_sizes(head_mass{}); }
TEST_CASE("pooled mass") {
  check_sizes(pooled_mass{});
  check_sizes(pooled_mass{.over_group = pool::mean});
}
TEST_CASE("pooled scores") {
  check_sizes(pooled_score{});
  check_sizes(pooled_score{.over_group = pool::max});
}

TEST_CASE("in any order of threads, and no barrier can be left out") {
  const auto body = [] { return right(head_votes{}, 3, 65, 128, 7) && right(head_mass{}, 3, 65, 128, 8); };
  zoomr_test::in_all_orders([&](const std::string&) { CHECK(body()); });
  CHECK(zoomr_test::barriers_not_missed(body) == std::vector<std::string>{});
}

// SPDX-License-Identifier: Apache-2.0
// Every aggregator on the device gives the votes of its host twin, bit for bit.
#include <zoomr/policy/aggregate/aggregation.cuh>
#include <zoomr/policy/aggregate/head_mass.hpp>
#include <zoomr/policy/aggregate/head_posterior.cuh>
#include <zoomr/policy/aggregate/head_votes.cuh>
#include <zoomr/policy/aggregate/pooled_mass.hpp>
#include <zoomr/policy/aggregate/pooled_score.hpp>
#include <zoomr/policy/aggregate/weighted.hpp>

#include <doctest/doctest.h>

#include <vector>  // std::vector

#include "support/device_memory.hpp"
#include "support/inputs.hpp"
#include "support/mutations.hpp"

namespace {

using namespace zoomr;
using zoomr::index_t;
using zoomr_test::device_array;
using zoomr_test::dice;

template <class Aggregator>
__global__ void aggregate_kernel(Aggregator rule, aggregation in) {
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  aggregate(rule, in, block);
}

struct inputs {
  std::vector<float> scores;
  std::vector<index_t> tokens;
  std::vector<votes_t> votes;
};

// Scores of every kind; some segments have nothing left, some votes are not zero before.
inputs made(index_t heads, index_t segments, dice& random) {
  inputs in;
  const float odd[] = {not_a_number, infinity, -infinity, 0.0f, -0.0f, 1e30f, -1e30f};
  const bool ties = random.chance(30);
  const bool peaked = random.chance(30);
  for (index_t i = 0; i < heads * segments; ++i) {
    float score = static_cast<float>(random.between(-4000, 4000)) / (peaked ? 10.0f : 500.0f);
    if (ties) score = static_cast<float>(random.between(-2, 2));
    if (random.chance(2)) score = random.one_of(odd);
    in.scores.push_back(score);
  }
  const bool none = random.chance(5);
  for (index_t id = 0; id < segments; ++id) {
    in.tokens.push_back(random.between(1, 900));
    in.votes.push_back(none || random.chance(15) ? not_eligible : random.chance(50) ? 0 : random.between(0, 99));
  }
  return in;
}

template <class Aggregator>
bool right(Aggregator rule, index_t heads, index_t segments, index_t threads, std::uint64_t seed,
           const score_logits& logits = 64) {
  dice random(seed);
  inputs in = made(heads, segments, random);
  device_array<float> scores(in.scores);
  device_array<index_t> tokens(in.tokens);
  device_array<votes_t> votes(in.votes);
  const aggregation given{view<const float, 2>(scores.data(), {heads, segments}), view<const index_t>(tokens.view()),
                          logits, votes.view()};
  launch({dim3(1), dim3(static_cast<unsigned>(threads))}, zoomr::stream_ref{}, aggregate_kernel<Aggregator>, rule,
         given);
  std::vector<index_t> order(in.tokens.size());
  rule.add(view<const float, 2>(in.scores.data(), {heads, segments}), view<const index_t>(in.tokens), logits,
           view<votes_t>(in.votes), view<index_t>(order));
  return votes.values() == in.votes;
}

template <class Aggregator>
__global__ void weigh_kernel(Aggregator rule, weighted_aggregation in) {
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  aggregate(rule, in, block);
}

// Some heads have no weight: the host is not shown their scores.
template <class Aggregator>
bool weighed_right(Aggregator rule, index_t heads, index_t segments, index_t threads, std::uint64_t seed) {
  dice random(seed);
  inputs in = made(heads, segments, random);
  std::vector<votes_t> weights, of_voters;
  std::vector<float> their_scores;
  for (index_t head = 0; head < heads; ++head) {
    weights.push_back(random.chance(40) ? 0 : random.between(1, 65536));
    if (weights.back() == 0) continue;
    of_voters.push_back(weights.back());
    const auto row = in.scores.begin() + std::ptrdiff_t{head} * segments;
    their_scores.insert(their_scores.end(), row, row + segments);
  }
  device_array<float> scores(in.scores);
  device_array<index_t> tokens(in.tokens);
  device_array<votes_t> votes(in.votes), weights_there(weights);
  const weighted_aggregation given{{view<const float, 2>(scores.data(), {heads, segments}),
                                    view<const index_t>(tokens.view()), score_logits(64), votes.view()},
                                   view<const votes_t>(weights_there.view())};
  launch({dim3(1), dim3(static_cast<unsigned>(threads))}, zoomr::stream_ref{}, weigh_kernel<Aggregator>, rule, given);
  std::vector<index_t> order(in.tokens.size());
  rule.add_weighted({their_scores.data(), {static_cast<index_t>(of_voters.size()), segments}}, of_voters, in.tokens, 64,
                    in.votes, order);
  return votes.values() == in.votes;
}

__global__ void hear_kernel(head_posterior rule, share_aggregation in, votes_t* of_none) {
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  const votes_t found = aggregate(rule, in, block);
  if (block.thread() == 0) *of_none = found;
}

// Shares of voters, as logs: some are not known, some are certain or out of reach.
bool heard_right(index_t voters, index_t segments, index_t threads, std::uint64_t seed) {
  const zoomr::none_class none{seed % 2 == 0 ? -infinity : -static_cast<float>(voters) * static_cast<float>(seed % 9),
                               seed % 3 == 0 ? 0.25f * static_cast<float>(seed % 7) : 0.0f};
  dice random(seed);
  inputs in = made(voters, segments, random);
  std::vector<float> weights;
  for (index_t voter = 0; voter < voters; ++voter) weights.push_back(static_cast<float>(random.between(1, 40)) / 16.0f);
  for (votes_t& votes : in.votes) votes = votes == not_eligible ? not_eligible : 0;
  device_array<float> shares(in.scores), weights_there(weights);
  device_array<votes_t> votes(in.votes);
  const share_aggregation heard{
      {shares.data(), {voters, segments}}, view<const float>(weights_there.view()), votes.view(), none};
  device_array<votes_t> of_none(std::vector<votes_t>(1));
  launch({dim3(1), dim3(static_cast<unsigned>(threads))}, zoomr::stream_ref{}, hear_kernel, head_posterior{}, heard,
         of_none.data());
  const votes_t expected = head_posterior{}.add_shares({in.scores.data(), {voters, segments}},
                                                       view<const float>(weights), view<votes_t>(in.votes), none);
  return votes.values() == in.votes && of_none.values()[0] == expected;
}

template <class Aggregator>
void check_sizes(Aggregator rule) {
  std::uint64_t seed = 1;
  for (const zoomr::index_t segments : {1, 2, 31, 32, 33, 64, 65, 257, 1031}) {
    for (const zoomr::index_t heads : {1, 4, 7, 35}) {
      for (const zoomr::index_t threads : {32, 128, 256}) CHECK(right(rule, heads, segments, threads, ++seed));
    }
  }
}

}  // namespace

TEST_CASE("votes") {
  check_sizes(head_votes{});
  check_sizes(head_votes{.k = 1});
  check_sizes(head_votes{.k = 40});
}
TEST_CASE("masses under a scale and a cap of the model's own") {
  score_logits logits = 64;
  for (const float cap : {0.0f, 1e-20f, 2.0f, 50.0f}) {
    logits.scale = 0.7f, logits.soft_cap = cap;
    for (std::uint64_t seed = 1; seed < 9; ++seed) {
      CHECK(right(head_mass{}, 4, 257, 128, seed, logits));
      CHECK(right(pooled_mass{}, 3, 65, 64, seed, logits));
    }
  }
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

TEST_CASE("a posterior of what heads that vote have heard") {
  std::uint64_t seed = 1;
  for (const zoomr::index_t segments : {1, 2, 33, 257, 1031}) {
    for (const zoomr::index_t voters : {1, 3, 20}) {
      for (const zoomr::index_t threads : {32, 256}) CHECK(heard_right(voters, segments, threads, ++seed));
    }
  }
}

TEST_CASE("votes and masses of heads with weights") {
  std::uint64_t seed = 1;
  for (const zoomr::index_t segments : {1, 33, 257}) {
    for (const zoomr::index_t heads : {1, 3, 9, 35}) {
      for (const zoomr::index_t threads : {32, 256}) {
        CHECK(weighed_right(head_votes{.k = 3}, heads, segments, threads, ++seed));
        CHECK(weighed_right(weighted(head_mass{}), heads, segments, threads, ++seed));
      }
    }
  }
}

TEST_CASE("in any order of threads, and no barrier can be left out") {
  const auto body = [] {  // more heads than warps, and than one goes through them
    return right(head_votes{.k = 3}, 35, 65, 128, 7) && right(head_mass{}, 35, 65, 128, 8);
  };
  zoomr_test::in_all_orders([&](const std::string&) { CHECK(body()); });
  CHECK(zoomr_test::barriers_not_missed(body) == std::vector<std::string>{});
}

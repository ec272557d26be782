// SPDX-License-Identifier: Apache-2.0
// Kernels at the sizes of a model's index against Thrust, compared where the results lie.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <support/device_memory.hpp>
#include <support/oracles.hpp>
#include <support/row_top_k.cuh>
#include <zoomr/core/device/block.cuh>

namespace zoomr_test {
namespace {

using zoomr::view;
using zoomr::votes_t;

/// launch_top_k gives what a stable sort gives.
template <class Score>
bool best_are_right(const std::vector<Score>& scores, index_t rows, index_t k) {
  const auto n = static_cast<index_t>(scores.size()) / rows;
  device_array<Score> in(scores);
  device_array<index_t> ids(std::int64_t{rows} * k, -7), counts(rows, -7);
  launch_top_k(view<const Score, 2>(in.data(), {rows, n}), view<index_t, 2>(ids.data(), {rows, k}), counts.view(),
               zoomr::stream_ref{});
  device_array<index_t> expected(std::int64_t{rows} * k, -8), expected_counts(rows, -8);
  wait_for(zoomr::stream_ref{});
  oracle::best_ids(in.data(), rows, n, k, expected.data(), expected_counts.data());
  return oracle::same(ids.data(), expected.data(), rows * k) &&
         oracle::same(counts.data(), expected_counts.data(), rows);
}

constexpr int threads = 256;

/// One block: sums of all that comes before, round after round.
__global__ void sums_kernel(view<const index_t> from, index_t* to) {
  __shared__ zoomr::block_scratch scratch;
  zoomr::block_threads block(scratch);
  index_t carried = 0;
  for (index_t first = 0; first < from.size(); first += threads) {
    const index_t i = first + block.thread();
    const auto sums = block.sum_before(i < from.size() ? from[i] : 0);
    if (i < from.size()) to[i] = carried + sums.before;
    carried += sums.all;
  }
}

}  // namespace

TEST_CASE("the best of long rows: votes with ties, scores with NaN and infinities") {
  unit::random random(3);
  std::vector<votes_t> votes(4 * 65521);
  for (votes_t& each : votes) each = random.chance(0.2) ? zoomr::not_eligible : random.below(1000);
  CHECK(best_are_right(votes, 4, 2048));
  CHECK(best_are_right(votes, 1, 100));
  std::vector<float> scores(2 * 131071);
  for (float& each : scores) each = random.chance(0.1) ? random.any_float() : random.uniform(-1.0f, 1.0f);
  CHECK(best_are_right(scores, 2, 1023));
}

TEST_CASE("sums before each of many numbers, by one block in rounds") {
  unit::random random(5);
  for (const index_t count : {1, 255, 256, 257, 100003}) {
    CAPTURE(count);
    std::vector<index_t> numbers(unit::size(count));
    for (index_t& each : numbers) each = random.below(17);
    device_array<index_t> from(numbers), sums(count, -7), expected(count, -8);
    zoomr::launch({dim3(1), dim3(threads)}, zoomr::stream_ref{}, sums_kernel, view<const index_t>(from.data(), {count}),
                  sums.data());
    wait_for(zoomr::stream_ref{});
    oracle::exclusive_sums(from.data(), count, expected.data());
    CHECK(oracle::same(sums.data(), expected.data(), count));
  }
}

}  // namespace zoomr_test

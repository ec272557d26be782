// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <support/device_memory.hpp>
#include <support/mutations.hpp>
#include <zoomr/core/device/block.cuh>

#include <algorithm>  // std::max, std::min
#include <numeric>    // std::accumulate

namespace zoomr {

namespace {

/// What each thread gets in each round: [rounds, threads].
template <class T>
struct collected {
  view<T, 2> sum, max, min, sum_before, sum_all, max_before, max_all;
};

template <class T>
__global__ void collect_kernel(view<const T, 2> values, collected<T> out) {
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  const index_t t = block.thread();
  for (index_t round = 0; round < values.extent(0); ++round) {
    const T value = values(round, t);
    out.sum(round, t) = block.sum(value);
    out.max(round, t) = block.largest(value);
    out.min(round, t) = block.smallest(value);
    const scanned<T> sums = block.sum_before(value);
    out.sum_before(round, t) = sums.before;
    out.sum_all(round, t) = sums.all;
    const scanned<T> largest = block.max_before(value);
    out.max_before(round, t) = largest.before;
    out.max_all(round, t) = largest.all;
  }
}

/// The same, in a loop.
template <class T>
std::vector<T> expected(const std::vector<T>& values, index_t rounds, index_t threads) {
  std::vector<T> out[7];
  for (index_t round = 0; round < rounds; ++round) {
    const auto first = values.begin() + std::ptrdiff_t{round} * threads;
    const auto last = first + threads;
    const T sum = std::accumulate(first, last, T{0});
    T before = 0;
    T largest = std::numeric_limits<T>::lowest();
    for (auto at = first; at < last; ++at) {
      out[0].push_back(sum);
      out[1].push_back(*std::max_element(first, last));
      out[2].push_back(*std::min_element(first, last));
      out[3].push_back(before);
      out[4].push_back(sum);
      out[5].push_back(largest);
      out[6].push_back(out[1].back());
      before += *at;
      largest = std::max(largest, *at);
    }
  }
  std::vector<T> made;
  for (const std::vector<T>& part : out) made.insert(made.end(), part.begin(), part.end());
  return made;
}

template <class T>
std::vector<T> random_values(unit::random& random, index_t count) {
  std::vector<T> values(unit::size(count));
  const bool small = random.chance(0.3);  // many ties
  for (T& value : values) {
    const std::uint64_t bits = random.bits();
    value = small ? static_cast<T>(bits % 3) : static_cast<T>(static_cast<T>(bits) / T{2048});  // 1024 of them fit
  }
  return values;
}

template <class T>
std::vector<T> collect(const std::vector<T>& values, index_t rounds, index_t threads) {
  const auto count = static_cast<std::int64_t>(values.size());
  zoomr_test::device_array<T> in(values);
  zoomr_test::device_array<T> out(7 * count, T{77});
  const auto part = [&](index_t number) { return view<T, 2>(out.data() + number * count, {rounds, threads}); };
  launch({1, static_cast<unsigned>(threads)}, stream_ref{}, &collect_kernel<T>,
         view<const T, 2>(in.data(), {rounds, threads}),
         collected<T>{part(0), part(1), part(2), part(3), part(4), part(5), part(6)});
  return out.values();
}

template <class T>
bool right(index_t threads, index_t rounds, std::uint64_t seed) {
  unit::random random(seed);
  const std::vector<T> values = random_values<T>(random, rounds * threads);
  return collect(values, rounds, threads) == expected(values, rounds, threads);
}

template <class T>
void check_sizes() {
  for (const index_t threads : {32, 64, 96, 256}) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      CAPTURE(threads);
      CAPTURE(seed);
      REQUIRE(right<T>(threads, 2, seed));
    }
  }
}

}  // namespace

TEST_CASE("sums, extremes and prefixes of a block are those of a loop, call after call") {
  zoomr_test::in_all_orders([](const std::string& order) {
    CAPTURE(order);
    check_sizes<std::int32_t>();
    check_sizes<std::int64_t>();
    check_sizes<std::uint64_t>();
    REQUIRE(right<std::int64_t>(992, 2, 3));
    REQUIRE(right<std::int64_t>(1024, 2, 3));
  });
}

TEST_CASE("no barrier of a block's collectives can be left out") {
  CHECK(zoomr_test::barriers_not_missed([] { return right<std::int64_t>(96, 3, 1); }) == std::vector<std::string>{});
}

}  // namespace zoomr

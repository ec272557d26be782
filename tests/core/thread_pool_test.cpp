// SPDX-License-Identifier: Apache-2.0
// Every piece is done once, whoever does it, and what it wrote is seen by the caller.
#include <zoomr/core/threads/thread_pool.hpp>

#include <doctest/doctest.h>

#include <atomic>  // std::atomic
#include <chrono>  // std::chrono::milliseconds
#include <thread>  // std::thread
#include <vector>  // std::vector

namespace zoomr_test {
namespace {

using zoomr::index_t;

TEST_CASE("thread_pool: each piece is done once, in thousands of rounds") {
  for (const index_t threads : {1, 2, 3, 7}) {
    CAPTURE(threads);
    zoomr::thread_pool pool(threads);
    REQUIRE(pool.threads() == threads);
    std::vector<int> done(std::size_t{97});
    int expected = 0;
    for (int round = 0; round < 2000; ++round) {
      const index_t pieces = index_t{round % 97};
      auto task = [&](index_t i) { ++done[static_cast<std::size_t>(i)]; };
      pool(pieces, zoomr::task_ref(task));
      expected += pieces;
      if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // its threads fall asleep
    }
    int all = 0;
    for (const int times : done) all += times;
    CHECK(all == expected);
    for (std::size_t i = 1; i < done.size(); ++i) CHECK(done[i] <= done[i - 1]);
  }
}

TEST_CASE("thread_pool: several callers wait for each other") {
  zoomr::thread_pool pool(3);
  std::atomic<int> all{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 300; ++round) {
        auto task = [&](index_t i) { all += i; };
        pool(5, zoomr::task_ref(task));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(all == 4 * 300 * 10);
}

TEST_CASE("thread_pool: for_each_piece gives no two pieces the same memory at a time") {
  zoomr::thread_pool pool(4);
  const zoomr::executor on = pool;
  for (const index_t pieces : {0, 1, 2, 3, 4, 5, 31}) {
    CAPTURE(pieces);
    std::vector<std::atomic<int>> inside(4);
    std::vector<int> times(static_cast<std::size_t>(pieces));
    std::atomic<bool> shared{false};
    zoomr::detail::for_each_piece(on, pieces, [&](index_t piece, index_t thread) {
      if (inside[static_cast<std::size_t>(thread)]++ != 0) shared = true;
      ++times[static_cast<std::size_t>(piece)];
      --inside[static_cast<std::size_t>(thread)];
    });
    CHECK_FALSE(shared);
    for (const int n : times) CHECK(n == 1);
  }
}

TEST_CASE("thread_pool: no threads, or more than any machine has, are refused in words") {
  CHECK_THROWS_AS(zoomr::thread_pool(0), zoomr::precondition_error);
  CHECK_THROWS_AS(zoomr::thread_pool(-3), zoomr::precondition_error);
  CHECK_THROWS_AS(zoomr::thread_pool(1025), zoomr::precondition_error);
}

}  // namespace
}  // namespace zoomr_test

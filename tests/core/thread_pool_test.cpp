// SPDX-License-Identifier: Apache-2.0
// Every piece is done once, whoever does it, and what it wrote is seen by the caller.
#include <zoomr/core/threads/thread_pool.hpp>

#include <doctest/doctest.h>

#include <pthread.h>  // pthread_kill, pthread_self

#include <atomic>   // std::atomic
#include <chrono>   // std::chrono::milliseconds
#include <csignal>  // std::signal
#include <cstdint>  // std::uint8_t
#include <thread>   // std::thread
#include <vector>   // std::vector

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

std::atomic<bool> held{false}, released{false};
void hold(int) {
  held = true;
  while (!released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_CASE("thread_pool: a thread that does not come is not waited for") {
  zoomr::thread_pool pool(2);
  const pthread_t caller = pthread_self();
  std::atomic<bool> found{false};
  pthread_t other{};
  auto look = [&](index_t) {
    if (pthread_equal(pthread_self(), caller) != 0 || found) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      other = pthread_self(), found = true;
    }
  };
  while (!found) pool(8, zoomr::task_ref(look));
  std::signal(SIGUSR1, hold);
  pthread_kill(other, SIGUSR1);
  while (!held) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::atomic<bool> returned{false}, late{false};
  std::thread watch([&] {
    for (int i = 0; i < 5000 && !returned; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    late = !returned;
    released = true;
  });
  int done = 0;
  auto count = [&](index_t) { ++done; };  // the caller alone can come
  for (int round = 0; round < 100; ++round) pool(7, zoomr::task_ref(count));
  returned = true;
  watch.join();
  CHECK(done == 700);
  CHECK_FALSE(late);
  std::signal(SIGUSR1, SIG_DFL);
}

TEST_CASE("thread_pool: more pieces than one offer has, and none") {
  zoomr::thread_pool pool(3);
  constexpr index_t most = 3 * 0xffff + 5;
  for (const index_t pieces : {0, 1, 0xffff, 0x10000, most}) {
    CAPTURE(pieces);
    std::vector<std::uint8_t> times(static_cast<std::size_t>(pieces));
    auto task = [&](index_t i) { ++times[static_cast<std::size_t>(i)]; };
    pool(pieces, zoomr::task_ref(task));
    bool once = true;
    for (const std::uint8_t n : times) once = once && n == 1;
    CHECK(once);
  }
}

TEST_CASE("thread_pool: no threads, or more than any machine has, are refused in words") {
  CHECK_THROWS_AS(zoomr::thread_pool(0), zoomr::precondition_error);
  CHECK_THROWS_AS(zoomr::thread_pool(-3), zoomr::precondition_error);
  CHECK_THROWS_AS(zoomr::thread_pool(1025), zoomr::precondition_error);
}

}  // namespace
}  // namespace zoomr_test

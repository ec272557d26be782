// SPDX-License-Identifier: Apache-2.0
// An engine's threads enter together: each piece is done once, everybody sees what came of it, and nobody leaves early
// or is left behind, whoever comes late and however many come.
#include <zoomr/core/threads/crew.hpp>

#include <doctest/doctest.h>
#include <support/inputs.hpp>

#include <array>      // std::array
#include <atomic>     // std::atomic
#include <chrono>     // std::chrono::milliseconds
#include <stdexcept>  // std::runtime_error
#include <thread>     // std::thread
#include <vector>     // std::vector

namespace zoomr_test::crew_test {
namespace {

/// Calls body(ith) in `count` threads, the caller's among them.
template <class Body>
void enter(index_t count, Body body) {
  std::vector<std::thread> others;
  for (index_t i = 1; i < count; ++i) others.emplace_back([&, i] { body(i); });
  body(0);
  for (std::thread& other : others) other.join();
}

TEST_CASE("crew: each piece is done once in thousands of calls, and all see it when they return") {
  for (const index_t threads : {1, 2, 3, 8}) {
    CAPTURE(threads);
    zoomr::crew crew(threads);
    REQUIRE(crew.threads() == threads);
    std::vector<int> done(std::size_t{13});  // written by whoever does the piece
    int calls = 0, offers = 0;               // the leader's
    std::atomic<int> wrong{0};
    enter(threads, [&](index_t ith) {
      for (int call = 1; call <= 1500; ++call) {
        crew.run(ith, threads, [&] {
          ++calls;
          for (int offer = 0; offer < call % 3; ++offer, ++offers) {
            auto task = [&](index_t i) { ++done[static_cast<std::size_t>(i)]; };
            crew(13, zoomr::task_ref(task));
            for (const int times : done) wrong += times != offers + 1;
          }
        });
      }
    });
    CHECK(wrong == 0);
    CHECK(calls == 1500);
    CHECK(offers == 1500);
    for (const int times : done) CHECK(times == offers);
  }
}

TEST_CASE("crew: who returns sees what the leader wrote, and threads are as many as each call says") {
  constexpr index_t most = 5;
  zoomr::crew crew(most);
  std::vector<int> written(std::size_t{400});
  std::atomic<int> wrong{0};
  const auto nth_of = [](int call) { return index_t{1 + call * 7 % most}; };
  enter(most, [&](index_t ith) {
    for (int call = 0; call < 400; ++call) {
      const index_t nth = nth_of(call);
      if (ith >= nth) continue;
      if (call % 50 == ith) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // late
      crew.run(ith, nth, [&] {
        wrong += crew.present() != nth;
        std::array<std::atomic<int>, 4> pieces{};
        auto task = [&](index_t i) { ++pieces[static_cast<std::size_t>(i)]; };
        crew(4, zoomr::task_ref(task));
        for (const auto& times : pieces) wrong += times != 1;
        if (call % 40 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the others fall asleep
        written[static_cast<std::size_t>(call)] = call + 1;
      });
      wrong += written[static_cast<std::size_t>(call)] != call + 1;
    }
  });
  CHECK(wrong == 0);
  CHECK(crew.present() == 1);
}

TEST_CASE("crew: all threads that are there take part") {
  zoomr::crew crew(3);
  std::array<std::thread::id, 3> whose;
  enter(3, [&](index_t ith) {
    crew.run(ith, 3, [&] {
      std::atomic<int> missing{3};
      auto task = [&](index_t i) {
        for (--missing; missing > 0;) std::this_thread::yield();  // until each of the three has a piece
        whose[static_cast<std::size_t>(i)] = std::this_thread::get_id();
      };
      crew(3, zoomr::task_ref(task));
    });
  });
  CHECK(whose[0] != whose[1]);
  CHECK(whose[1] != whose[2]);
  CHECK(whose[0] != whose[2]);
}

TEST_CASE("crew: what the leader throws is thrown in its thread alone, and the next call is as always") {
  zoomr::crew crew(3);
  std::atomic<int> caught{0}, returned{0}, done{0};
  enter(3, [&](index_t ith) {
    for (int call = 0; call < 60; ++call) {
      try {
        crew.run(ith, 3, [&] {
          auto task = [&](index_t) { ++done; };
          crew(5, zoomr::task_ref(task));
          if (call % 2 == 0) throw std::runtime_error("of the leader");
        });
        ++returned;
      } catch (const std::runtime_error&) {
        if (ith == 0) ++caught;
      }
    }
  });
  CHECK(caught == 30);
  CHECK(returned == 3 * 60 - 30);
  CHECK(done == 60 * 5);
}

TEST_CASE("crew: it works alone outside of a call, and refuses what cannot be") {
  zoomr::crew crew(4);
  int done = 0;
  auto task = [&](index_t) { ++done; };
  crew(6, zoomr::task_ref(task));
  CHECK(done == 6);
  const zoomr::executor workers = crew;
  CHECK(workers.threads() == 4);
  CHECK(workers.present().threads() == 1);
  CHECK(workers.worth() == zoomr::crew::worth);
  CHECK(workers.worth() < zoomr::executor::usually_worth);
  CHECK_THROWS_AS(zoomr::crew(0), zoomr::precondition_error);
  CHECK_THROWS_AS(zoomr::crew(1025), zoomr::precondition_error);
  CHECK_THROWS_AS(crew.run(4, 5, [] {}), zoomr::precondition_error);
  CHECK_THROWS_AS(crew.run(2, 2, [] {}), zoomr::precondition_error);
  CHECK_THROWS_AS(crew.run(-1, 2, [] {}), zoomr::precondition_error);
}

}  // namespace
}  // namespace zoomr_test::crew_test

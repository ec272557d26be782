// SPDX-License-Identifier: Apache-2.0
// What a ring may do, with a ring that does all of it (support/ring/liburing.h).
#include <doctest/doctest.h>
#include <liburing.h>
#include <paging/queues.hpp>

namespace zoomr {

namespace {

/// Plays queues with a ring.
/// @return  reads that failed, though what they were after had been written
template <class Engine>
index_t play_with(const ring_script& script) {
  index_t spoiled = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const std::int64_t submits = ring().submits;
    ring() = script;
    ring().submits = submits;
    ring().dice = seed;
    spoiled += unit::play_queue<Engine>(seed, 400);
  }
  return spoiled;
}

/// Whether reads are begun at the same places each time, and not only when a thread runs.
template <class Engine>
constexpr bool in_turn = std::is_same_v<Engine, unit::scripted_transfers>;

/// A ring of which nobody has asked anything.
void begin_anew() { ring() = {}; }

}  // namespace

TEST_CASE_TEMPLATE("reads that come in any order, or in part, or not, are all the same", Engine, async_transfers,
                   unit::scripted_transfers) {
  begin_anew();
  CHECK(play_with<Engine>({}) == 0);
  CHECK(ring().submits > (in_turn<Engine> ? 500 : -1));
  const auto result = [](int (*of)(int came)) {
    return [of](void* to, int came) {
      const int told = of(came);
      if (came > 0) std::memset(static_cast<char*>(to) + std::max(told, 0), 0xee, unit::size(came - std::max(told, 0)));
      return told;
    };
  };
  CHECK(play_with<Engine>({.finished = result([](int came) { return came / 2; })}) == 0);
  CHECK(play_with<Engine>({.finished = result([](int) { return 0; })}) == 0);
  for (const int error : {EIO, EINTR, EAGAIN, ECANCELED, EINVAL}) {
    static int now = 0;
    now = error;
    CHECK(play_with<Engine>({.finished = result([](int came) { return next_die() % 2 == 0 ? -now : came; })}) == 0);
  }
}

TEST_CASE_TEMPLATE("bytes that are not those that were written are a failure of that read", Engine, async_transfers,
                   unit::scripted_transfers) {
  begin_anew();
  index_t flips = 0;
  const index_t spoiled = play_with<Engine>({.finished = [&](void* to, int came) {
    if (next_die() % 8 != 0) return came;
    ++flips;
    static_cast<char*>(to)[came / 3] ^= 4;
    return came;
  }});
  CHECK(spoiled <= flips);
  CHECK(spoiled > (in_turn<Engine> ? 50 : -1));
}

TEST_CASE("while a disk is waited for, reads are begun behind it if nothing before them is in the way") {
  begin_anew();
  ring().at_once = 0;
  using unit::block;
  zoomr_test::temporary_folder folder;
  block_file file(folder.path(), block, unit::blocks);
  char bytes[10][block] = {};
  for (std::int64_t b = 0; b < unit::blocks; ++b) file.write(b, bytes[0]);
  const auto read = [&](std::int64_t of, char* to) {
    return transfer{.to = to, .bytes = block, .file = &file, .block = of};
  };
  const auto copy = [](const char* from, char* to) { return transfer{.from = from, .to = to, .bytes = block}; };
  failed_tickets failed;
  failed.add(1);
  early_reads early;
  const std::vector<transfer> queue{
      read(0, bytes[0]),                                                        // 2: its turn
      copy(bytes[0], bytes[1]),                                                 // 3
      read(1, bytes[2]),                                                        // 4: nothing in the way
      read(1, bytes[3]),                                                        // 5: of the same block
      read(2, bytes[0] + block - 1),                                            // 6: over the end of what 2 fills
      read(2, bytes[1] + block - 1),                                            // 7: over the end of what 3 fills
      {.from = bytes[4], .bytes = block, .file = &file, .block = 3},            // 8
      read(3, bytes[7]),                                                        // 9: what 8 writes
      read(4, bytes[4] + 1),                                                    // 10: where 8 reads
      {.to = bytes[6], .bytes = block, .file = &file, .block = 0, .after = 3},  // 11: if 3 has not failed
      {.to = bytes[8], .bytes = block, .file = &file, .block = 0, .after = 1},  // 12: 1 has failed
  };
  const auto waiting = [&](ticket of) -> const transfer& { return queue[of - 2]; };
  const auto begin = [&](ticket made, ticket started) {
    early.begin(made, started, failed, waiting);
    std::vector<ticket> all;
    for (ticket of = made + 1; of < 2 + queue.size(); ++of) {
      if (early.begun(of)) all.push_back(of);
    }
    return all;
  };
  const auto make = [&](ticket of) { CHECK_FALSE(static_cast<bool>(move_one(waiting(of)))); };
  using tickets = std::vector<ticket>;
  CHECK(begin(1, 3) == tickets{2});
  CHECK(begin(1, 12) == tickets{2, 4, 5});
  make(2);
  CHECK(begin(2, 12) == tickets{4, 5});  // 6 still lies in what 3 reads
  make(3);
  CHECK(begin(3, 12) == tickets{4, 5, 6, 11});  // 7 lies where 6 does
  for (ticket of = 4; of < 8; ++of) make(of);
  CHECK(begin(7, 12) == tickets{11});
  make(8);
  CHECK(begin(8, 12) == tickets{9, 10, 11});
  for (const ticket of : {9, 10, 11}) make(of);
}

TEST_CASE("what comes at once needs nothing begun behind it") {
  begin_anew();
  zoomr_test::temporary_folder folder;
  block_file file(folder.path(), 8, 4);
  std::int64_t numbers[4] = {};
  for (std::int64_t b = 0; b < 4; ++b) file.write(b, &b);
  failed_tickets failed;
  early_reads early;
  const auto begun_behind = [&](std::uint64_t at_once) {
    ring().at_once = at_once;
    early = {};
    early.begin(0, 4, failed, [&](ticket of) {
      const auto block = static_cast<std::int64_t>(of - 1);
      return transfer{.to = &numbers[block], .bytes = 8, .file = &file, .block = block};
    });
    CHECK(early.begun(1));
    const bool behind = early.begun(2);
    CHECK(early.begun(4) == behind);
    for (std::int64_t b = 0; b < 4; ++b) file.read(b, &numbers[b]);
    return behind;
  };
  CHECK_FALSE(begun_behind(3));
  CHECK(begun_behind(0));
}

TEST_CASE("a read that is under way is made, though what it comes after counts as failed since") {
  begin_anew();
  ring().at_once = 0;
  zoomr_test::temporary_folder folder;
  block_file file(folder.path(), 8, 3);
  std::int64_t numbers[4] = {};
  file.write(0, &numbers[0]), file.write(1, &numbers[1]);
  const auto read = [&](std::int64_t block, int to, ticket after = 0) {
    return transfer{.to = &numbers[to], .bytes = 8, .file = &file, .block = block, .after = after};
  };
  unit::scripted_transfers engine;
  const ticket good = engine.start({.from = &numbers[0], .to = &numbers[1], .bytes = 8});
  for (int failures = 0; failures < 1024; ++failures)
    CHECK_FALSE(engine.wait(engine.start(read(2, 2))));  // never written
  engine.start(read(0, 0));
  engine.start(read(2, 2));  // one more than can be told apart
  const ticket last = engine.start(read(1, 3, good));
  CHECK(engine.wait(last));
}

TEST_CASE("the thread beside begins reads") {
  begin_anew();
  for (int tries = 0; tries < 1000 && ring().submits < 100; ++tries) play_with<async_transfers>({});
  CHECK(ring().submits >= 100);
}

TEST_CASE("a kernel that has no ring, or has none left, is asked no more") {
  begin_anew();
  CHECK(play_with<unit::scripted_transfers>({.refused = true}) == 0);
  CHECK(play_with<async_transfers>({.refused = true}) == 0);
  CHECK(ring().submits == 0);
  for (std::int64_t fails = 0; fails < 30; ++fails) {
    zoomr_test::temporary_folder folder;
    ring() = {.fails = fails};
    block_file file(folder.path(), 8, 40);
    std::int64_t numbers[40] = {};
    for (std::int64_t b = 0; b < 40; ++b) file.write(b, &b);
    index_t begun = 0;
    for (std::int64_t b = 0; b < 40; ++b) begun += file.begin_read(b, &numbers[b]) ? 1 : 0;
    CHECK(begun == fails);
    CHECK(ring().submits == fails + 1);
    CHECK_FALSE(file.begins_reads());
    for (std::int64_t b = 40; b-- > 0;) {
      file.read(b, &numbers[b]);
      CHECK(numbers[b] == b);
    }
  }
  begin_anew();
}

TEST_CASE("no more reads are under way than a file was given, and none when it goes") {
  begin_anew();
  for (const index_t early : {0, 1, 5, 32, 1000}) {
    zoomr_test::temporary_folder folder;
    std::int64_t numbers[40] = {};
    ring().submits = 0;
    {
      block_file file(folder.path(), 8, 40, early);
      for (std::int64_t b = 0; b < 40; ++b) file.write(b, &b);
      CHECK(file.begins_reads() == (early > 0));
      index_t begun = 0;
      for (std::int64_t b = 0; b < 40; ++b) begun += file.begin_read(b, &numbers[b]) ? 1 : 0;
      CHECK(begun == std::min(early, 32));
    }
    for (std::int64_t b = 0; b < std::min(early, 32); ++b) CHECK(numbers[b] == b);
  }
}

}  // namespace zoomr

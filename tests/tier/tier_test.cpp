// SPDX-License-Identifier: Apache-2.0
// The parts of tiers: files of blocks, engines, the order of replacement.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <support/temporary_folder.hpp>
#include <zoomr/tier/replacement.hpp>
#include <zoomr/tier/transfers.hpp>

#include <sys/stat.h>  // stat

#include <string_view>  // std::string_view

namespace zoomr {

using zoomr_test::temporary_folder;

TEST_CASE("a block file gives back what was written, and leaves nothing behind") {
  temporary_folder in;
  const std::string path = in.path();
  unit::random random(30);
  for (const byte_count bytes : {1, 7, 8, 9, 4096, 100003}) {
    block_file file(path, bytes, 5);
    struct stat found;
    CHECK(::stat(path.c_str(), &found) != 0);
    std::vector<std::vector<char>> blocks;
    for (index b = 0; b < 5; ++b) {
      blocks.emplace_back(static_cast<std::size_t>(bytes));
      for (char& c : blocks.back()) c = static_cast<char>(random.below(256) - 128);
      file.write(4 - b, blocks.back().data());
    }
    for (index b = 0; b < 5; ++b) {
      std::vector<char> got(static_cast<std::size_t>(bytes));
      file.read(4 - b, got.data());
      CHECK(got == blocks[static_cast<std::size_t>(b)]);
    }
  }
}

TEST_CASE("a block that was never written, or is not what was written, is an error") {
  temporary_folder in;
  block_file file(in.path(), 64, 3);
  char bytes[64] = {};
  CHECK_THROWS_AS(file.read(1, bytes), error);  // zeros, but not written ones
  file.write(1, bytes);
  file.read(1, bytes);
  for (std::size_t bit = 0; bit < 64 * 8; bit += 37) {
    char other[64] = {};
    other[bit / 8] = static_cast<char>(1 << bit % 8);
    CHECK(checksum(other, 64) != checksum(bytes, 64));
  }
  CHECK(checksum(bytes, 63) != checksum(bytes, 64));
}

TEST_CASE("a file that cannot be made says so") {
  const auto what = [](const std::string& path, byte_count bytes) {
    try {
      block_file(path, bytes, 1 << 20);
    } catch (const error& fault) {
      CHECK(fault.code() == errc::storage);
      return std::string(fault.what());
    }
    return std::string();
  };
  CHECK(what("/nowhere/at/all", 64).find("cannot be made: No such file or directory") != std::string::npos);
  CHECK(what("/tmp", 64).find("cannot be made: File exists") != std::string::npos);
  temporary_folder in;
  CHECK(what(in.path(), byte_count{1} << 36).find("cannot be given") != std::string::npos);
}

TEST_CASE_TEMPLATE("transfers are made in their order, and one that needs a failed one fails", Engine,
                   transfers_at_once, transfers_beside) {
  temporary_folder in;
  block_file file(in.path(), 4, 2);
  std::vector<std::int32_t> cells(200);
  cells[0] = 42;
  Engine engine;
  ticket last = 0;
  for (std::size_t i = 1; i < cells.size(); ++i) {
    last = engine.start({.from = &cells[i - 1], .to = &cells[i], .bytes = 4});
  }
  CHECK(engine.wait(last));
  CHECK(engine.done(last));
  CHECK(cells.back() == 42);
  std::int32_t got = 0;
  const ticket bad = engine.start({.to = &got, .bytes = 4, .file = &file, .block = 1});  // never written
  const ticket after = engine.start({.from = &got, .to = &cells[0], .bytes = 4, .after = bad});
  const ticket other = engine.start({.from = &cells[5], .bytes = 4, .file = &file, .block = 1});
  const ticket good = engine.start({.to = &got, .bytes = 4, .file = &file, .block = 1});
  CHECK_FALSE(engine.wait(after));
  CHECK_FALSE(engine.wait(bad));
  CHECK_FALSE(engine.wait(bad));  // as often as it is asked
  CHECK(engine.wait(good));
  CHECK(engine.wait(other));
  CHECK(got == 42);
  CHECK(cells[0] == 42);
}

TEST_CASE("least_recent gives up what was used longest ago, of what may go") {
  least_recent order(4);
  const auto any = [](index) { return true; };
  CHECK(order.victim(any) == -1);
  for (const index slot : {2, 0, 3, 1}) order.touch(slot);
  CHECK(order.victim(any) == 2);
  order.touch(2);
  CHECK(order.victim(any) == 0);
  CHECK(order.victim([](index slot) { return slot > 1; }) == 3);
  order.forget(0);
  CHECK(order.victim(any) == 3);
  CHECK(order.victim([](index) { return false; }) == -1);
}

TEST_CASE("least_frequent gives up what is used seldom, and forgets old uses") {
  least_frequent order(3);
  const auto any = [](index) { return true; };
  CHECK(order.victim(any) == -1);
  for (int i = 0; i < 20; ++i) order.touch(0);  // 7 of them count
  for (const index slot : {1, 2, 2}) order.touch(slot);
  CHECK(order.victim(any) == 1);
  CHECK(order.victim([](index slot) { return slot != 1; }) == 2);
  order.forget(1);
  CHECK(order.victim([](index slot) { return slot == 0; }) == 0);  // in the end it goes too
  CHECK(order.victim([](index) { return false; }) == -1);
  order.forget(0), order.forget(2);
  CHECK(order.victim(any) == -1);
}

}  // namespace zoomr

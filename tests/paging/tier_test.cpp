// SPDX-License-Identifier: Apache-2.0
// The parts of tiers: files of blocks, engines, the order of replacement.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <support/temporary_folder.hpp>
#include <zoomr/paging/tiers/replacement.hpp>
#include <zoomr/paging/tiers/transfers.hpp>

#include <sys/stat.h>  // stat

#include <algorithm>    // std::fill_n, std::find
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
    for (index_t b = 0; b < 5; ++b) {
      blocks.emplace_back(static_cast<std::size_t>(bytes));
      for (char& c : blocks.back()) c = static_cast<char>(random.below(256) - 128);
      file.write(4 - b, blocks.back().data());
    }
    for (index_t b = 0; b < 5; ++b) {
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
  temporary_folder in;
  CHECK(what(in.path(), byte_count{1} << 36).find("cannot be given") != std::string::npos);
}

TEST_CASE_TEMPLATE("transfers are made in their order, and one that fails fails alone", Engine, sync_transfers,
                   async_transfers) {
  temporary_folder in;
  block_file file(in.path(), 4, 2);
  std::vector<std::int32_t> cells(200);
  cells[0] = 42;
  Engine engine;
  ticket last = 0;
  for (std::size_t i = 1; i < cells.size(); ++i) {
    engine.start({&file, 0, &cells[i - 1], true});
    last = engine.start({&file, 0, &cells[i]});
  }
  CHECK(engine.wait(last));
  CHECK(engine.done(last));
  CHECK(cells.back() == 42);
  std::int32_t got = 0;
  const ticket bad = engine.start({&file, 1, &got});  // never written
  const ticket good = engine.start({&file, 0, &got});
  CHECK_FALSE(engine.wait(bad));
  CHECK_FALSE(engine.wait(bad));  // as often as it is asked
  CHECK(engine.wait(good));
  CHECK(got == 42);
}

TEST_CASE("lru evicts what was used longest ago, of what may go") {
  lru order(4, 1);
  const auto any = [](index_t) { return true; };
  CHECK(order.victim(any) == -1);
  for (const index_t frame : {2, 0, 3, 1}) order.touch(frame);
  CHECK(order.victim(any) == 2);
  order.touch(2);
  CHECK(order.victim(any) == 0);
  CHECK(order.victim([](index_t frame) { return frame > 1; }) == 3);
  order.forget(0);
  CHECK(order.victim(any) == 3);
  CHECK(order.victim([](index_t) { return false; }) == -1);
}

TEST_CASE("cyclic_mru evicts what was passed over, then what was read just before, then what this pass has read") {
  constexpr index_t layers = 3;
  cyclic_mru order(7, layers);
  const auto any = [](index_t) { return true; };
  CHECK(order.victim(any) == -1);
  for (const index_t layer : {0, 1, 2}) {  // frames 0 1 | 2 3 | 4 5
    order.begin_pass();
    order.touch(2 * layer);
    order.touch(2 * layer + 1);
  }
  order.begin_pass();  // layer 0 again
  CHECK(order.victim(any) == 5);
  CHECK(order.victim([](index_t frame) { return frame < 5; }) == 4);
  CHECK(order.victim([](index_t frame) { return frame < 4; }) == 3);
  CHECK(order.victim([](index_t frame) { return frame < 2; }) == 0);  // of this layer: it comes now
  order.touch(0);
  CHECK(order.victim([](index_t frame) { return frame < 1; }) == 0);  // it has just been read
  order.touch(6), order.expect(6);                                    // for layer 1
  order.forget(5);
  CHECK(order.victim(any) == 4);
  order.begin_pass();
  CHECK(order.victim(any) == 1);  // passed over
  order.forget(1);
  CHECK(order.victim(any) == 0);  // not 6, which waits for this pass
  CHECK(order.victim([](index_t frame) { return frame == 6; }) == 6);
  order.touch(6);
  order.forget(0), order.forget(2), order.forget(3), order.forget(4);
  CHECK(order.victim(any) == 6);
  CHECK(order.victim([](index_t) { return false; }) == -1);
}

TEST_CASE("cyclic_mru finds again what there is room for, where age finds nothing") {
  // Three layers of four pages each, in a circle, and room for eight.
  const auto misses = [](auto order) {
    index_t at[12], count = 0;
    index_t held[8];
    std::fill_n(at, 12, -1), std::fill_n(held, 8, -1);
    for (index_t visit = 0; visit < 12 * 10; ++visit) {
      const index_t page = visit % 12;
      if (page % 4 == 0) order.begin_pass();
      if (at[page] < 0) {
        ++count;
        index_t frame = static_cast<index_t>(std::find(held, held + 8, -1) - held);
        if (frame == 8) {
          frame = order.victim([](index_t) { return true; });
          at[held[frame]] = -1;
          order.forget(frame);
        }
        held[frame] = page, at[page] = frame;
      }
      order.touch(at[page]);
    }
    return count;
  };
  CHECK(misses(lru(8, 3)) == 120);
  CHECK(misses(cyclic_mru(8, 3)) <= 12 + 9 * 6);  // 12 + 9 * 4.4 if the future were known
}

TEST_CASE("lfu evicts what is used seldom, and forgets old uses") {
  lfu order(3, 1);
  const auto any = [](index_t) { return true; };
  CHECK(order.victim(any) == -1);
  for (int i = 0; i < 20; ++i) order.touch(0);  // 7 of them count
  for (const index_t frame : {1, 2, 2}) order.touch(frame);
  CHECK(order.victim(any) == 1);
  CHECK(order.victim([](index_t frame) { return frame != 1; }) == 2);
  order.forget(1);
  CHECK(order.victim([](index_t frame) { return frame == 0; }) == 0);  // in the end it goes too
  CHECK(order.victim([](index_t) { return false; }) == -1);
  order.forget(0), order.forget(2);
  CHECK(order.victim(any) == -1);
}

}  // namespace zoomr

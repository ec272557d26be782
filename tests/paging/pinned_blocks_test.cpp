// SPDX-License-Identifier: Apache-2.0
// Pinned memory in front of a file, against a list of what each block was last given: whatever comes and goes, a block
// that is asked for has it. Then with a file that fails.
#include <doctest/doctest.h>
#include <support/file_calls.hpp>
#include <support/inputs.hpp>
#include <support/temporary_folder.hpp>
#include <zoomr/paging/pinned_blocks.hpp>

#include <set>  // std::set

namespace zoomr_test {
namespace {

using file_calls::fault;
using zoomr::index_t;
using zoomr::view;

constexpr index_t layers = 3, pages = 11, numbers = 6;

/// The blocks, their memory, and what each should hold.
template <class Order>
struct tried_blocks {
  explicit tried_blocks(index_t most, const std::string& path)
      : memory(static_cast<std::size_t>((most + zoomr::pinned_spares) * numbers), -1),
        blocks(memory.data(), most, layers, pages, numbers, path) {}

  int* at(index_t place) { return memory.data() + std::int64_t{place} * numbers; }
  /// What a block was given last lies there.
  bool holds(index_t layer, index_t page, index_t place) {
    const int wanted = given[layer][page];
    const int* const found = at(place);
    return wanted == 0 || std::all_of(found, found + numbers, [&](int number) { return number == wanted; });
  }
  void give(index_t layer, index_t page, index_t place) {
    std::fill_n(at(place), numbers, given[layer][page] = ++values);
  }

  std::vector<int> memory;
  zoomr::pinned_blocks<int, Order> blocks;
  int given[layers][pages] = {};  // 0: nothing that counts
  int values = 0;
};

/// Steps at random: some pages are held, and written or not; each layer reads others, some of them ahead.
/// @param failing  a block that does not come is none that counts from then on
template <class Order>
void play(tried_blocks<Order>& tried, index_t most, dice& random, index_t steps, bool failing = false) {
  auto& blocks = tried.blocks;
  for (index_t step = 0; step < steps; ++step) {
    std::vector<zoomr::held_page> held;
    const index_t most_held = (std::min)(most / layers, pages);
    for (index_t page = 0; page < pages; ++page) {
      if (static_cast<index_t>(held.size()) >= most_held || !random.chance(15)) continue;
      const bool written = random.chance(60);
      held.push_back({page, written && random.chance(30), written});
    }
    std::vector<index_t> places(held.size() * layers);
    blocks.hold(view<const zoomr::held_page>(held), places.data());
    std::set<index_t> taken(places.begin(), places.end());
    const bool all_came = taken.count(most) == 0;
    CHECK((failing || (all_came && taken.size() == places.size())));
    for (std::size_t i = 0; i < held.size(); ++i) {
      for (index_t layer = 0; layer < layers; ++layer) {
        const index_t place = places[i * layers + static_cast<std::size_t>(layer)];
        REQUIRE((place >= 0 && place <= most));
        if (place == most) continue;
        CHECK((held[i].fresh || tried.holds(layer, held[i].page, place)));
        if (held[i].fresh) tried.given[layer][held[i].page] = 0;
      }
    }
    const index_t room = (most - static_cast<index_t>(places.size())) / 2;  // for a layer, and one ahead
    // With those that were asked for ahead.
    const auto pages_to_read = [&](std::set<index_t> of_layer) {
      std::vector<index_t> some;
      for (index_t i = random.between(0, 2 * room + 1); i > 0; --i) {
        const index_t page = random.between(0, pages - 1);
        if (of_layer.count(page) == 0 && static_cast<index_t>(of_layer.size()) >= room) continue;
        of_layer.insert(page);
        some.push_back(page);
      }
      return some;
    };
    using places_by_page = std::vector<std::pair<index_t, index_t>>;
    places_by_page early;  // they stay until their layer was read
    for (index_t layer = 0; layer < layers; ++layer) {
      const auto read = [&](index_t of, bool ahead) {
        places_by_page found;
        std::set<index_t> of_layer;
        for (const auto& [page, place] : early) {
          if (!ahead) of_layer.insert(page);
        }
        const std::vector<index_t> some = pages_to_read(of_layer);
        std::vector<index_t> there(some.size(), -1);
        blocks.read(of, ahead, view<const index_t>(some), view<index_t>(there));
        for (std::size_t i = 0; i < some.size(); ++i) {
          REQUIRE((there[i] >= 0 && there[i] <= most));
          CHECK((failing || there[i] < most));
          if (there[i] < most) found.push_back({some[i], there[i]});
        }
        return found;
      };
      const auto now = read(layer, false);
      const auto next = layer + 1 < layers ? read(layer + 1, true) : places_by_page{};
      for (const auto& [page, place] : now) CHECK(tried.holds(layer, page, place));
      for (const auto& [page, place] : early) CHECK(tried.holds(layer, page, place));
      for (const auto& [page, place] : next) CHECK(tried.holds(layer + 1, page, place));
      early = next;
      for (std::size_t i = 0; i < held.size(); ++i) {
        const index_t place = places[i * layers + static_cast<std::size_t>(layer)];
        if (held[i].written && place < most) tried.give(layer, held[i].page, place);
      }
    }
    if (random.chance(90)) continue;
    const index_t layer = random.between(0, layers - 1), page = random.between(0, pages - 1);
    const bool write = random.chance(50);
    int* const there = [&]() -> int* {
      try {
        return blocks.reach(layer, page, write);
      } catch (const zoomr::error&) {
        CHECK(failing);
        return nullptr;
      }
    }();
    if (there == nullptr) continue;
    const auto place = static_cast<index_t>((there - tried.memory.data()) / numbers);
    if (write) tried.give(layer, page, place);
    CHECK(tried.holds(layer, page, place));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("a block that is asked for has what it was given last", Order, zoomr::cyclic_mru, zoomr::lru,
                   zoomr::lfu) {
  temporary_folder folder;
  dice random(3);
  for (const index_t most : {3, 4, 7, 20, layers * pages}) {
    CAPTURE(most);
    tried_blocks<Order> tried(most, folder.path());
    play(tried, most, random, 100);
    CHECK(tried.blocks.take_fault() == "");
    CHECK((tried.blocks.file_out() > 0) == (most < layers * pages));
    CHECK((tried.blocks.file_in() > 0) == (most < layers * pages));
  }
}

TEST_CASE("where all blocks have room the file is never used") {
  temporary_folder folder;
  tried_blocks<zoomr::cyclic_mru> tried(layers * pages, folder.path());
  dice random(4);
  play(tried, layers * pages, random, 50);
  CHECK((tried.blocks.file_in() == 0 && tried.blocks.file_out() == 0));
}

TEST_CASE("a file that fails is told of once, gives the spare place, and loses nothing") {
  for (const fault how : {fault::error, fault::full, fault::interrupted, fault::partial}) {
    temporary_folder folder;
    const std::string path = folder.path();
    file_calls::now = {.path = path.c_str()};
    tried_blocks<zoomr::cyclic_mru> tried(9, path);
    dice random(5), faults(6);
    bool any = false;
    const std::function<fault(file_calls::call)> chooses = [&](file_calls::call) {
      return faults.chance(10) ? how : fault::none;
    };
    const bool fails = how == fault::error || how == fault::full;
    for (int round = 0; round < 20; ++round) {
      file_calls::now.chooses = &chooses;
      play(tried, 9, random, 5, fails);
      const std::string said = tried.blocks.take_fault();
      CHECK((fails || said == ""));
      if (said != "") CHECK(said.find("of the tier's file " + path + " cannot be ") != std::string::npos);
      any = any || said != "";
      CHECK(tried.blocks.take_fault() == "");
      file_calls::now.chooses = nullptr;
      play(tried, 9, random, 5);
      CHECK(tried.blocks.take_fault() == "");
    }
    CHECK(any == fails);
    file_calls::now = {};
  }
}

TEST_CASE("a block that changes in the file is not taken for the one that was written") {
  temporary_folder folder;
  const std::string path = folder.path();
  file_calls::now = {.path = path.c_str()};
  tried_blocks<zoomr::lru> tried(3, path);
  for (index_t page = 0; page < pages; ++page) {
    std::fill_n(tried.blocks.reach(1, page, true), numbers, tried.given[1][page] = page + 1);
  }
  file_calls::now.made = 0, file_calls::now.fails = 1,
  file_calls::now.how = fault::flipped;  // what makes room is written before
  const auto refused = [&] {
    try {
      tried.blocks.reach(1, 0, false);
      return std::string();
    } catch (const zoomr::error& failed) {
      CHECK(failed.code() == zoomr::errc::storage);
      return std::string(failed.what());
    }
  };
  CHECK(refused().find("is not what was written there") != std::string::npos);
  file_calls::now = {};
  CHECK(refused() == "");
}

}  // namespace zoomr_test

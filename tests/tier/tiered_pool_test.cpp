// SPDX-License-Identifier: Apache-2.0
// A tiered pool against plain memory: any calls, any schedule of transfers, each transfer failing once.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <support/temporary_folder.hpp>
#include <tier/engines.hpp>
#include <zoomr/tier/tiered_pool.hpp>

#include <map>  // std::map

namespace zoomr {

namespace {

constexpr shape model{3, 2, 1, 4};

std::string new_path() {
  static zoomr_test::temporary_folder folder;
  return folder.path();
}

/// Plays calls on a pool, and remembers what every block must hold.
template <class Pool>
class game {
 public:
  game(index pages, index device, index host, const std::string& path, unit::random& random)
      : pool_(model, pages, device, host, path), random_(random) {}

  /// @return false if the call has failed; what was known before is still true
  bool play() {
    const int what = below(100);
    if (what < 15 && pool_.free_pages() > 0) {
      held_.push_back(pool_.take());
      return true;
    }
    if (held_.empty()) return true;
    const index page = held_[static_cast<std::size_t>(below(static_cast<int>(held_.size())))];
    const index layer = below(model.layers);
    const auto known = marks_.find({layer, page});
    try {
      if (what < 45) {
        if (known == marks_.end()) return true;
        const float* numbers = pool_.reach(layer, page);
        for (std::int64_t i = 0; i < block_numbers; ++i) REQUIRE(numbers[i] == known->second + static_cast<float>(i));
      } else if (what < 70) {
        const auto mark = static_cast<float>(++last_mark_ * 1000 % 100000);
        float* numbers = pool_.reach_to_write(layer, page);
        if (known != marks_.end()) REQUIRE(numbers[3] == known->second + 3);
        for (std::int64_t i = 0; i < block_numbers; ++i) numbers[i] = mark + static_cast<float>(i);
        marks_[{layer, page}] = mark;
      } else if (what < 80) {
        pool_.prefetch(layer, page);
      } else if (what < 90) {
        pool_.write_back(page);
      } else if (what < 95) {
        pool_.touch(layer, page);
      } else if (what < 97) {
        for (index l = 0; l < model.layers; ++l) marks_.erase({l, page});
        std::erase(held_, page);
        pool_.give_back(page);
      } else {
        pool_.begin_layer(layer);
      }
    } catch (const error& fault) {
      REQUIRE(fault.code() == errc::storage);
      return false;
    }
    return true;
  }

  /// Every block, once more.
  /// @return  how many could be had only at the second try
  int check_all() {
    int failures = 0;
    for (const auto& [at, mark] : marks_) {
      const float* numbers = nullptr;
      try {
        numbers = pool_.reach(at.first, at.second);
      } catch (const error&) {
        ++failures;
        numbers = pool_.reach(at.first, at.second);
      }
      REQUIRE(numbers[0] == mark);
      REQUIRE(numbers[block_numbers - 1] == mark + static_cast<float>(block_numbers - 1));
    }
    return failures;
  }
  const Pool& pool() const { return pool_; }

 private:
  static constexpr std::int64_t block_numbers = 2 * page_tokens * model.head_dim;

  int below(int n) { return random_.below(n); }

  Pool pool_;
  unit::random& random_;
  std::vector<index> held_;
  std::map<std::pair<index, index>, float> marks_;
  int last_mark_ = 0;
};

template <class Order>
using scripted_pool = tiered_pool<float, Order, unit::scripted_transfers>;

/// @return  how many transfers were made, and whether a call has failed
template <class Order>
std::pair<std::int64_t, int> play(std::uint32_t seed, bool file, std::int64_t fails, int calls) {
  unit::random random(seed);
  unit::random schedule(seed + 1000);
  unit::script() = {.made_now = [&] { return schedule.below(4) == 0 ? schedule.below(5) : 0; }, .fails = fails};
  int failures = 0;
  {
    game<scripted_pool<Order>> made(9, 6 + static_cast<index>(seed % 5), 6, file ? new_path() : "", random);
    for (int i = 0; i < calls; ++i) failures += made.play() ? 0 : 1;
    failures += made.check_all();
  }
  const std::int64_t count = unit::script().made;
  unit::script() = {};
  return {count, failures};
}

}  // namespace

TEST_CASE("a tiered pool holds what was written, whatever the schedule of its transfers") {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    for (const bool file : {false, true}) {
      CHECK(play<least_recent>(seed, file, -1, 600).second == 0);
      CHECK(play<least_frequent>(seed, file, -1, 600).second == 0);
      CHECK(play<farthest_use>(seed, file, -1, 600).second == 0);
    }
  }
}

TEST_CASE("each transfer fails once: an error at most, and nothing is lost") {
  for (const bool file : {false, true}) {
    int seen = 0;
    const std::int64_t all = play<least_recent>(7, file, -1, 150).first;
    REQUIRE(all > 40);
    for (std::int64_t fails = 0; fails < all; ++fails) {
      CAPTURE(fails);
      CAPTURE(file);
      seen += play<least_recent>(7, file, fails, 150).second;
    }
    CHECK(seen > all / 8);
  }
}

TEST_CASE("with a thread beside") {
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    unit::random random(seed);
    game<tiered_pool<float, least_recent, transfers_beside>> made(9, 6, 6, seed % 2 == 0 ? new_path() : "", random);
    for (int i = 0; i < 2000; ++i) REQUIRE(made.play());
    REQUIRE(made.check_all() == 0);
    CHECK(made.pool().stats().misses > 0);
  }
}

TEST_CASE("what is on the device does not move again") {
  tiered_pool<float, least_recent, transfers_at_once> pool(model, 4, 12, 12, "");
  const index page = pool.take();
  pool.reach_to_write(0, page)[0] = 5.0f;
  pool.write_back(page);
  const tier_statistics before = pool.stats();
  for (int i = 0; i < 10; ++i) {
    CHECK(pool.reach(0, page)[0] == 5.0f);
    pool.reach(1, page);
    pool.write_back(page);
    pool.prefetch(0, page);
  }
  CHECK(pool.stats().device_in == before.device_in);
  CHECK(pool.stats().device_out == before.device_out);
  CHECK(before.device_out == pool.block_bytes(model));
}

TEST_CASE_TEMPLATE("four pointers are valid at a time", Order, farthest_use, least_recent, least_frequent) {
  tiered_pool<float, Order, transfers_at_once> pool(model, 12, 6, 36, "");
  std::vector<index> pages;
  for (index p = 0; p < 12; ++p) {
    pages.push_back(pool.take());
    pool.reach_to_write(0, pages.back())[0] = static_cast<float>(p);
  }
  for (std::size_t p = 0; p + 4 <= 12; ++p) {
    const float* four[4];
    for (std::size_t i = 0; i < 4; ++i) four[i] = pool.reach(0, pages[p + i]);
    pool.prefetch(0, pages[(p + 8) % 12]);
    for (std::size_t i = 0; i < 4; ++i) CHECK(four[i][0] == static_cast<float>(p + i));
  }
}

}  // namespace zoomr

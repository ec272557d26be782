// SPDX-License-Identifier: Apache-2.0
// A tiered pool against plain memory: any calls, any schedule of transfers, each transfer failing once.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <paging/engines.hpp>
#include <support/temporary_folder.hpp>
#include <zoomr/paging/tiers/tiered_pool.hpp>

#include <map>      // std::map
#include <random>   // std::mt19937
#include <utility>  // std::exchange, std::pair

namespace zoomr {

namespace {

constexpr shape model{3, 2, 2, 4};
constexpr block_shape all_heads{model, 2};
constexpr block_shape one_head{model, 1};

std::string new_path() {
  static zoomr_test::temporary_folder folder;
  return folder.path();
}

/// Plays calls on a pool, and remembers what every block must hold.
template <class Pool>
class game {
 public:
  game(const block_shape& block, index_t pages, index_t frames, const std::string& path, unit::random& random)
      : pool_(block, pages, frames, path), block_(block), random_(random) {}

  /// @return false if the call has failed; what was known before is still true
  bool play() {
    const int what = below(100);
    if (what < 15 && pool_.free_pages() > 0) {
      held_.push_back(pool_.take());
      return true;
    }
    if (held_.empty()) return true;
    const index_t page = held_[static_cast<std::size_t>(below(static_cast<int>(held_.size())))];
    const index_t piece = below(block_.pieces());
    const auto known = marks_.find({piece, page});
    try {
      if (what < 45) {
        if (known == marks_.end()) return true;
        const float* numbers = pool_.reach(piece, page);
        for (std::int64_t i = 0; i < block_.numbers<float>(); ++i)
          REQUIRE(numbers[i] == known->second + static_cast<float>(i));
      } else if (what < 70) {
        const auto mark = static_cast<float>(++last_mark_ * 1000 % 100000);
        float* numbers = pool_.reach_to_write(piece, page);
        if (known != marks_.end()) REQUIRE(numbers[3] == known->second + 3);
        for (std::int64_t i = 0; i < block_.numbers<float>(); ++i) numbers[i] = mark + static_cast<float>(i);
        marks_[{piece, page}] = mark;
      } else if (what < 80) {
        pool_.prefetch(piece, page);
      } else if (what < 90) {
        pool_.write_back(page);
      } else if (what < 95) {
        pool_.touch(piece, page);
      } else if (what < 97) {
        for (index_t p = 0; p < block_.pieces(); ++p) marks_.erase({p, page});
        std::erase(held_, page);
        pool_.give_back(page);
      } else {
        pool_.begin_layer(piece * block_.heads / model.kv_heads);
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
      const std::int64_t last = block_.numbers<float>() - 1;
      REQUIRE(numbers[last] == mark + static_cast<float>(last));
    }
    return failures;
  }
  const Pool& pool() const { return pool_; }

 private:
  int below(int n) { return random_.below(n); }

  Pool pool_;
  block_shape block_;
  unit::random& random_;
  std::vector<index_t> held_;
  std::map<std::pair<index_t, index_t>, float> marks_;
  int last_mark_ = 0;
};

template <class Order>
using scripted_pool = tiered_pool<float, Order, unit::scripted_transfers>;

/// @return  how many transfers were made, and whether a call has failed
template <class Order>
std::pair<std::int64_t, int> play(std::uint32_t seed, std::int64_t fails, int calls) {
  unit::random random(seed);
  unit::random schedule(seed + 1000);
  unit::script() = {.made_now = [&] { return schedule.below(4) == 0 ? schedule.below(5) : 0; }, .fails = fails};
  int failures = 0;
  {
    game<scripted_pool<Order>> made(seed % 2 == 0 ? all_heads : one_head, 9, 6 + static_cast<index_t>(seed % 5),
                                    new_path(), random);
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
    CHECK(play<lru>(seed, -1, 600).second == 0);
    CHECK(play<lfu>(seed, -1, 600).second == 0);
    CHECK(play<cyclic_mru>(seed, -1, 600).second == 0);
  }
}

TEST_CASE("each transfer fails once: an error at most, and nothing is lost") {
  int seen = 0;
  const std::int64_t all = play<lru>(7, -1, 150).first;
  REQUIRE(all > 40);
  for (std::int64_t fails = 0; fails < all; ++fails) {
    CAPTURE(fails);
    seen += play<lru>(7, fails, 150).second;
  }
  CHECK(seen > all / 8);
}

TEST_CASE("with a thread beside") {
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    unit::random random(seed);
    game<tiered_pool<float, lru, async_transfers>> made(seed % 4 < 2 ? all_heads : one_head, 9, 6, new_path(), random);
    for (int i = 0; i < 2000; ++i) REQUIRE(made.play());
    REQUIRE(made.check_all() == 0);
    CHECK(made.pool().stats().misses > 0);
  }
}

TEST_CASE("what is in memory does not move again") {
  tiered_pool<float, lru, sync_transfers> pool(all_heads, 4, 12, new_path());
  const index_t page = pool.take();
  pool.reach_to_write(0, page)[0] = 5.0f;
  pool.write_back(page);
  const tier_statistics before = pool.stats();
  for (int i = 0; i < 10; ++i) {
    CHECK(pool.reach(0, page)[0] == 5.0f);
    pool.reach(1, page);
    pool.write_back(page);
    pool.prefetch(0, page);
  }
  CHECK(pool.stats().bytes_in == before.bytes_in);
  CHECK(pool.stats().bytes_out == before.bytes_out);
  CHECK(before.bytes_out == all_heads.bytes<float>());
}

TEST_CASE_TEMPLATE("a block is in memory where reaching it is a hit, and asking moves nothing", Order, cyclic_mru, lru,
                   lfu) {
  tiered_pool<float, Order, sync_transfers> pool(one_head, 12, 9, new_path());
  std::vector<index_t> pages;
  for (index_t p = 0; p < 12; ++p) pages.push_back(pool.take());
  std::mt19937 random(3);
  int here = 0;
  std::pair<index_t, index_t> last{-1, -1};
  for (int i = 0; i < 300; ++i) {
    const auto piece = static_cast<index_t>(random() % static_cast<unsigned>(one_head.pieces()));
    const index_t page = pages[random() % (i < 50 ? 2 : pages.size())];
    if (std::exchange(last, {piece, page}) == std::pair(piece, page)) continue;  // no visit: it is the same block
    const tier_statistics before = pool.stats();
    const bool found = pool.in_memory(piece, page);
    REQUIRE(pool.stats().hits + pool.stats().misses == before.hits + before.misses);
    REQUIRE(pool.stats().bytes_in == before.bytes_in);
    pool.reach_to_write(piece, page)[0] = 1.0f;
    REQUIRE(pool.stats().hits - before.hits == (found ? 1 : 0));
    REQUIRE(pool.in_memory(piece, page));
    here += found ? 1 : 0;
    if (i % 40 == 39) {
      pool.forget(page);
      REQUIRE(!pool.in_memory(piece, page));
    }
  }
  CHECK(here > 30);
  CHECK(here < 250);
}

TEST_CASE_TEMPLATE("four pointers are valid at a time", Order, cyclic_mru, lru, lfu) {
  tiered_pool<float, Order, sync_transfers> pool(all_heads, 12, 6, new_path());
  std::vector<index_t> pages;
  for (index_t p = 0; p < 12; ++p) {
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

TEST_CASE("a page that one KV head reads brings what that head holds") {
  for (const block_shape& block : {all_heads, one_head}) {
    tiered_pool<float, lru, sync_transfers> pool(block, 8, 6, new_path());
    index_t pages[8];
    for (index_t& page : pages) page = pool.take();
    for (const index_t page : pages) pool.kv_lane(1, 1, view<const index_t>(&page, {1})).writable_key(0)[0] = 1.0f;
    const tier_statistics before = pool.stats();
    CHECK(pool.kv_lane(1, 1, view<const index_t>(&pages[0], {1})).key(0)[0] == 1.0f);
    CHECK(pool.stats().bytes_in - before.bytes_in == 2 * block.heads * page_tokens * model.head_dim * 4);
  }
}

TEST_CASE("a full page is written to the file in all its pieces, and one that was given back is never fetched") {
  for (const block_shape& block : {all_heads, one_head}) {
    tiered_pool<float, lru, sync_transfers> pool(block, 2, 6, new_path());
    const index_t page = pool.take();
    for (index_t piece = 0; piece < block.pieces(); ++piece) pool.reach_to_write(piece, page)[0] = 1.0f;
    pool.write_back(page);
    CHECK(pool.stats().bytes_out == pool.page_bytes(model));
    const index_t other = pool.take();
    for (index_t piece = 0; piece < block.pieces(); ++piece) pool.reach_to_write(piece, other);
    pool.give_back(page);
    CHECK(pool.take() == page);
    for (index_t piece = 0; piece < block.pieces(); ++piece) {
      pool.prefetch(piece, page);
      pool.reach(piece, page);
    }
    CHECK(pool.stats().bytes_in == 0);
  }
}

TEST_CASE("KV lanes do not overlap, whatever a block holds") {
  constexpr shape many{2, 6, 3, 8};
  constexpr index_t tokens = 2 * page_tokens + 1;
  for (const index_t heads : {1, 3}) {
    CAPTURE(heads);
    tiered_pool<float, cyclic_mru, sync_transfers> pool({many, heads}, 3, 6, new_path());
    const index_t pages[] = {pool.take(), pool.take(), pool.take()};
    const auto mark = [](index_t kv_lane, index_t token, index_t d) {
      return static_cast<float>((kv_lane * tokens + token) * many.head_dim + d);
    };
    const auto kv_lane_of = [&](index_t kv_lane) {
      return pool.kv_lane(kv_lane / 3, kv_lane % 3, view<const index_t>(pages, {3}));
    };
    for (index_t kv_lane = 0; kv_lane < many.kv_lanes(); ++kv_lane) {
      for (index_t token = 0; token < tokens; ++token) {
        float* key = kv_lane_of(kv_lane).writable_key(token);
        for (index_t d = 0; d < many.head_dim; ++d) {
          key[d] = mark(kv_lane, token, d);
          kv_lane_of(kv_lane).value_of(key, token)[d] = -mark(kv_lane, token, d);
        }
      }
    }
    for (index_t kv_lane = 0; kv_lane < many.kv_lanes(); ++kv_lane) {
      for (index_t token = 0; token < tokens; ++token) {
        const float* key = kv_lane_of(kv_lane).key(token);
        for (index_t d = 0; d < many.head_dim; ++d) {
          REQUIRE(key[d] == mark(kv_lane, token, d));
          REQUIRE(kv_lane_of(kv_lane).value_of(key, token)[d] == -mark(kv_lane, token, d));
        }
      }
    }
  }
}

}  // namespace zoomr

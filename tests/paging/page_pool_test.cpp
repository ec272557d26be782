// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/core/storage.hpp>
#include <zoomr/paging/page_pool.hpp>
#include <zoomr/policy/placement/placement.hpp>

#include <algorithm>  // std::any_of, std::count, std::sort
#include <set>        // std::set

namespace zoomr {

TEST_CASE("a page is handed out to one owner at a time") {
  unit::random random(50);
  const index_t pages = 13;
  page_pool<float> pool({1, 1, 1, 8}, pages);
  std::set<index_t> owned;
  for (int round = 0; round < 2000; ++round) {
    if (!owned.empty() && (pool.free_pages() == 0 || random.chance(0.5))) {
      const auto given = std::next(owned.begin(), random.below(static_cast<index_t>(owned.size())));
      pool.give_back(*given);
      owned.erase(given);
    } else {
      const index_t page = pool.take();
      REQUIRE((0 <= page && page < pages));
      REQUIRE(owned.insert(page).second);
    }
    REQUIRE(pool.used_pages() == static_cast<index_t>(owned.size()));
    REQUIRE(pool.free_pages() + pool.used_pages() == pages);
  }
}

TEST_CASE("a page that is shared is free when as many have given it back as hold it") {
  unit::random random(51);
  page_pool<float> pool({1, 1, 1, 8}, 7);
  std::vector<index_t> held(7);
  for (int round = 0; round < 2000; ++round) {
    const index_t page = random.below(7);
    index_t& tables = held[static_cast<std::size_t>(page)];
    if (tables > 0 && random.chance(0.6)) {
      pool.give_back(page);
      --tables;
    } else if (tables > 0) {
      pool.share(page);
      ++tables;
    } else if (pool.free_pages() > 0) {
      const index_t next = pool.next();
      REQUIRE(pool.take() == next);
      REQUIRE(held[static_cast<std::size_t>(next)]++ == 0);
    }
    REQUIRE(pool.free_pages() == static_cast<index_t>(std::count(held.begin(), held.end(), 0)));
    REQUIRE(pool.any_shared() == std::any_of(held.begin(), held.end(), [](index_t n) { return n > 1; }));
  }
}

TEST_CASE("a copied page holds what the other one does, in each layer, and nothing else changes") {
  const shape model{3, 4, 2, 8};
  page_pool<scaled_int8> pool(model, 3);
  const std::vector<index_t> ids{0, 1, 2};
  const auto bytes_of = [&](index_t page) {
    std::vector<std::int8_t> made;
    for (index_t layer = 0; layer < model.layers; ++layer) {
      const scaled_int8* const first = pool.kv_lane(layer, 0, ids).key(page * page_tokens);
      for (std::int64_t i = 0; i < 2 * model.kv_heads * head_numbers<scaled_int8>(8); ++i)
        made.push_back(first[i].bits);
    }
    return made;
  };
  for (index_t page = 0; page < 3; ++page) {
    for (index_t layer = 0; layer < model.layers; ++layer) {
      scaled_int8* const first = pool.kv_lane(layer, 0, ids).key(page * page_tokens);
      for (std::int64_t i = 0; i < 2 * model.kv_heads * head_numbers<scaled_int8>(8); ++i)
        first[i].bits = static_cast<std::int8_t>((i * 7 + layer * 31 + page * 50) % 127);
    }
  }
  const auto before = bytes_of(1);
  REQUIRE(bytes_of(0) != bytes_of(2));
  pool.copy_page(2, 0);
  CHECK(bytes_of(0) == bytes_of(2));
  CHECK(bytes_of(1) == before);
}

TEST_CASE("all pages can be taken, the first ones first") {
  page_pool<bfloat16> pool({1, 1, 1, 8}, 5);
  for (index_t page = 0; page < 5; ++page) CHECK(pool.take() == page);
  CHECK(pool.free_pages() == 0);
}

TEST_CASE("the KV lanes share the memory without a gap and without meeting, and nothing ever moves") {
  const shape model{3, 4, 2, 24};
  const index_t pages = 5;
  page_pool<float> pool(model, pages);
  const std::vector<index_t> ids{3, 0, 4, 1, 2};
  std::vector<const float*> numbers;
  const auto collect = [&] {
    numbers.clear();
    for (index_t layer = 0; layer < model.layers; ++layer) {
      for (index_t head = 0; head < model.kv_heads; ++head) {
        const auto kv_lane = pool.kv_lane(layer, head, ids);
        for (index_t slot = 0; slot < pages * page_tokens; ++slot) {
          for (index_t d = 0; d < model.head_dim; ++d) {
            numbers.push_back(kv_lane.key(slot) + d);
            numbers.push_back(kv_lane.value(slot) + d);
          }
        }
      }
    }
  };
  collect();
  const std::vector<const float*> before = numbers;
  for (index_t page = 0; page < pages; ++page) pool.take();
  for (index_t page = 0; page < pages; ++page) pool.give_back(page);
  collect();
  CHECK(numbers == before);
  std::sort(numbers.begin(), numbers.end());
  CHECK(static_cast<byte_count>(numbers.size() * sizeof(float)) == pages * page_pool<float>::page_bytes(model));
  bool dense = true;
  for (std::size_t i = 1; i < numbers.size(); ++i) dense = dense && numbers[i] == numbers[i - 1] + 1;
  CHECK(dense);
}

TEST_CASE("of one layer and page, the keys of all heads lie side by side, and then their values") {
  const shape model{2, 6, 3, 16};
  page_pool<float> pool(model, 4);
  const std::vector<index_t> ids{2};
  const std::int64_t head = 16 * 16;
  const auto first = pool.kv_lane(1, 0, ids);
  for (index_t kv_head = 0; kv_head < 3; ++kv_head) {
    const auto kv_lane = pool.kv_lane(1, kv_head, ids);
    CHECK(kv_lane.key(0) - first.key(0) == kv_head * head);
    CHECK(kv_lane.value(0) - first.key(0) == (3 + kv_head) * head);
    CHECK(kv_lane.key(5) - kv_lane.key(0) == 5 * 16);
  }
}

TEST_CASE("a page's bytes are keys and values of 16 tokens in all KV lanes") {
  const shape model{3, 4, 2, 24};
  CHECK(page_pool<float>::page_bytes(model) == 2 * 16 * 3 * 2 * 24 * 4);
  CHECK(page_pool<bfloat16>::page_bytes(model) == 2 * 16 * 3 * 2 * 24 * 2);
}

TEST_CASE("details lie on the host, or some are freed, not both") {
  CHECK(placement{.details_on_host = true}.problem() == nullptr);
  CHECK(placement{.frees_unreachable = true}.problem() == nullptr);
  CHECK(placement{.details_on_host = true, .frees_unreachable = true}.problem() != nullptr);
}

}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/policy/summarize/key_box.hpp>
#include <zoomr/policy/summarize/key_cuboid.hpp>
#include <zoomr/policy/summarize/key_mean.hpp>
#include <zoomr/policy/summarize/no_summary.hpp>
#include <zoomr/policy/summarize/stored_as.hpp>

#include <algorithm>  // std::minmax_element
#include <cmath>      // std::isnan

namespace zoomr {

namespace {

template <class Summarizer>
auto summary_of(const Summarizer& summarize, const std::vector<float>& keys) {
  auto cell = summarize.open();
  for (const float key : keys) summarize.fold(cell, key);
  summarize.close(cell, static_cast<index_t>(keys.size()));
  return cell;
}

}  // namespace

TEST_CASE("key_mean adds keys in ascending order and divides once, bit for bit") {
  unit::random random(20);
  for (const index_t count : {1, 2, 3, 31, 257}) {
    const std::vector<float> keys = random.floats(unit::size(count), -100.0f, 100.0f);
    float sum = 0.0f;
    for (const float key : keys) sum += key;
    CHECK(summary_of(key_mean{}, keys).row[0] == sum / static_cast<float>(count));
  }
  CHECK(summary_of(key_mean{}, {2.5f}).row[0] == 2.5f);
}

TEST_CASE("the mean of a key that is NaN is NaN") {
  CHECK(std::isnan(summary_of(key_mean{}, {1.0f, not_a_number, 2.0f}).row[0]));
}

TEST_CASE("key_box is the smallest and the largest key") {
  unit::random random(21);
  for (const index_t count : {1, 2, 3, 31, 257}) {
    const std::vector<float> keys = random.floats(unit::size(count), -100.0f, 100.0f);
    const auto [low, high] = std::minmax_element(keys.begin(), keys.end());
    const cells<2> box = summary_of(key_box{}, keys);
    CHECK(box.row[0] == *low);
    CHECK(box.row[1] == *high);
  }
  const cells<2> box = summary_of(key_box{}, {3.0f, -infinity, infinity});
  CHECK(box.row[0] == -infinity);
  CHECK(box.row[1] == infinity);
}

TEST_CASE("one NaN key makes both sides of the box NaN, whatever comes before and after it") {
  for (const std::size_t where : {0u, 1u, 2u, 3u}) {
    std::vector<float> keys{1.0f, -2.0f, 3.0f, 0.5f};
    keys[where] = std::numeric_limits<float>::quiet_NaN();
    const cells<2> box = summary_of(key_box{}, keys);
    CAPTURE(where);
    CHECK(std::isnan(box.row[0]));
    CHECK(std::isnan(box.row[1]));
  }
}

TEST_CASE("a summary stored as another type is the same summary, of fewer bits") {
  const auto halved = stored_as<bfloat16>(key_box{});
  using halved_type = std::remove_const_t<decltype(halved)>;
  static_assert(summarizer<halved_type> && std::same_as<halved_type::summary, summary::box>);
  static_assert(std::same_as<summary_number<halved_type>, bfloat16>);
  static_assert(std::same_as<summary_number<key_box>, float>);
  static_assert(std::same_as<summary_number<decltype(stored_as<float8>(key_cuboid{}))>, float8>);
  CHECK(halved == stored_as<bfloat16>(key_box{}));
  unit::random random(23);
  for (const float key : random.floats(10000, -3.0f, 3.0f)) {
    CHECK(stored_number<summary::mean, bfloat16>(0, key) == from_float<bfloat16>(key));
    const cells<2> box = summary_of(halved, {key});
    CHECK(to_float(stored_number<summary::box, bfloat16>(0, box.row[0])) <= key);
    CHECK(to_float(stored_number<summary::box, bfloat16>(1, box.row[1])) >= key);
    CHECK(stored_number<summary::box, float>(1, key) == key);
  }
}

TEST_CASE("no_summary makes nothing") {
  CHECK(no_summary::summary::rows == 0);
  summary_of(no_summary{}, {1.0f, 2.0f});
}

TEST_CASE("key_cuboid reaches as far from the middle of the keys as they lie from it on the average") {
  const std::vector<float> keys{1, -2, 5, /* */ 3, -2, 9, /* */ 7, -2, 5, /* */ 1, -2, 5};  // 4 keys of 3 dimensions
  std::vector<float> out(6), work(4);
  std::vector<index_t> order(4);
  key_cuboid{}.make({keys.data(), {4, 3}}, order, work, {out.data(), {3, 2}});
  CHECK(out ==
        std::vector<float>{4 - 2.5f, 4 + 2.5f, -2, -2, 7 - 2, 7 + 2});  // (3 + 1 + 3 + 3) / 4, 0, (2 + 2 + 2 + 2) / 4
  key_cuboid{}.make({keys.data(), {1, 3}}, order, work, {out.data(), {3, 2}});
  CHECK(out == std::vector<float>{1, 1, -2, -2, 5, 5});
  for (const float odd : {not_a_number, infinity, -infinity}) {
    const auto sides = key_cuboid::of_dimension(3, [&](index_t t) { return t == 1 ? odd : 0.5f; });
    CHECK((sides.row[0] != sides.row[0] || sides.row[1] != sides.row[1]));
  }
}

}  // namespace zoomr

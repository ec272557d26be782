// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/summarize/key_box.hpp>
#include <zoomr/summarize/key_mean.hpp>
#include <zoomr/summarize/none.hpp>

#include <algorithm>  // std::minmax_element
#include <cmath>      // std::isnan

namespace zoomr {

namespace {

template <class Summarizer>
auto summary_of(const Summarizer& summarize, const std::vector<float>& keys) {
  auto cell = summarize.open();
  for (const float key : keys) summarize.fold(cell, key);
  summarize.close(cell, static_cast<index>(keys.size()));
  return cell;
}

}  // namespace

TEST_CASE("key_mean adds keys in ascending order and divides once, bit for bit") {
  unit::random random(20);
  for (const index count : {1, 2, 3, 31, 257}) {
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
  for (const index count : {1, 2, 3, 31, 257}) {
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

TEST_CASE("no_summary makes nothing") {
  CHECK(no_summary::summary::rows == 0);
  summary_of(no_summary{}, {1.0f, 2.0f});
}

}  // namespace zoomr

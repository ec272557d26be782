// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <zoomr/core/table.hpp>
#include <zoomr/core/view.hpp>

#include <concepts>  // std::same_as

namespace zoomr {

TEST_CASE("a table is counted and indexed by index_t, and is a vector otherwise") {
  table<index_t> numbers(3);
  static_assert(std::same_as<decltype(numbers.size()), index_t>);
  CHECK(numbers.size() == 3);
  CHECK(numbers[2] == 0);
  numbers.resize(2);
  numbers.reserve(10);
  const index_t* const place = numbers.data();
  for (index_t i = 2; i < 10; ++i) numbers.push_back(i);
  CHECK(numbers.data() == place);
  numbers[index_t{0}] = 7, numbers[std::size_t{1}] = 8;
  const table<index_t> copy = numbers;
  CHECK(copy == numbers);
  CHECK(copy[std::int64_t{0}] == 7);
  const view<const index_t> seen(copy);
  CHECK(seen.size() == 10);
  CHECK(seen[1] == 8);
  CHECK(seen[9] == 9);
}

#if ZOOMR_CHECKED
TEST_CASE("an index beyond a table, or below 0, is found in debug builds") {
  table<int> numbers(2);
  CHECK_THROWS_AS(numbers[2], precondition_error);
  CHECK_THROWS_AS(numbers[-1], precondition_error);
  const table<int> none;
  CHECK_THROWS_AS(none[0], precondition_error);
}
#endif

}  // namespace zoomr

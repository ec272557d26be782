// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <zoomr/core/view.hpp>

#include <array>    // std::array
#include <numeric>  // std::iota
#include <vector>   // std::vector

namespace zoomr {

namespace {

std::vector<int> counted(std::size_t n) {
  std::vector<int> made(n);
  std::iota(made.begin(), made.end(), 0);
  return made;
}

}  // namespace

TEST_CASE("a dense view is row-major") {
  auto numbers = counted(2 * 3 * 5);
  const view<int, 3> v(numbers.data(), {2, 3, 5});
  int expected = 0;
  for (index_t i = 0; i < 2; ++i) {
    for (index_t j = 0; j < 3; ++j) {
      for (index_t k = 0; k < 5; ++k) {
        CHECK(v(i, j, k) == expected);
        CHECK(v[i](j, k) == expected);
        CHECK(v[i][j][k] == expected);
        ++expected;
      }
    }
  }
  CHECK(v.extent(0) == 2);
  CHECK(v.extent(2) == 5);
  CHECK(v.stride(0) == 15);
  CHECK(v.stride(1) == 5);
  CHECK(v.stride(2) == 1);
}

TEST_CASE("a strided view skips what is not its own") {
  auto numbers = counted(4 * 10);
  // the middle 3 of each 10, of every second row
  const view<int, 2> v(numbers.data() + 4, {2, 3}, {20, 1});
  CHECK(v(0, 0) == 4);
  CHECK(v(0, 2) == 6);
  CHECK(v(1, 0) == 24);
  CHECK(v[1][2] == 26);
}

TEST_CASE("writing through a view changes what it looks at") {
  auto numbers = counted(6);
  const view<int, 2> v(numbers.data(), {2, 3});
  v(1, 2) = 50;
  v[0][1] = 10;
  CHECK(numbers == std::vector<int>{0, 10, 2, 3, 4, 50});
}

TEST_CASE("a view of mutable elements converts to one of constant elements, not back") {
  auto numbers = counted(6);
  const view<int, 2> v(numbers.data(), {2, 2}, {3, 1});
  const view<const int, 2> c = v;
  CHECK(c(1, 1) == 4);
  CHECK(c.stride(0) == 3);
  static_assert(std::is_convertible_v<view<int, 2>, view<const int, 2>>);
  static_assert(!std::is_convertible_v<view<const int, 2>, view<int, 2>>);
  static_assert(!std::is_convertible_v<view<int>, view<float>>);
  static_assert(!std::is_convertible_v<view<int, 2>, view<const int, 1>>);
}

TEST_CASE("vectors and arrays become views of all their elements") {
  auto numbers = counted(4);
  const view<int> v = numbers;
  CHECK(v.size() == 4);
  CHECK(std::vector<int>(v.begin(), v.end()) == numbers);
  const std::array<int, 3> fixed{7, 8, 9};
  const view<const int> c = fixed;
  CHECK(c.size() == 3);
  CHECK(c[2] == 9);
  const std::vector<int>& read_only = numbers;
  static_assert(!std::is_convertible_v<decltype(read_only), view<int>>);
  CHECK(view<const int>(read_only).data() == numbers.data());
}

TEST_CASE("a slice keeps strides and may be empty") {
  auto numbers = counted(12);
  const view<int, 2> v(numbers.data(), {4, 3});
  const view<int, 2> middle = v.slice(1, 3);
  CHECK(middle.extent(0) == 2);
  CHECK(middle(0, 0) == 3);
  CHECK(middle(1, 2) == 8);
  CHECK(v.slice(4, 4).extent(0) == 0);
  CHECK(v.slice(0, 0).extent(0) == 0);
  CHECK(view<int>(numbers).slice(2, 5).size() == 3);
}

TEST_CASE("a view knows its shape, and whether its last dimension is contiguous") {
  auto numbers = counted(12);
  const view<int, 2> v(numbers.data(), {4, 3});
  CHECK(v.has_shape({4, 3}));
  CHECK_FALSE(v.has_shape({3, 4}));
  CHECK_FALSE(v.has_shape({4, 2}));
  CHECK_FALSE(view<int, 2>(numbers.data(), {4, 1}, {3, 2}).has_shape({4, 1}));
  CHECK(view<int, 2>().has_shape({0, 0}) == false);  // strides of nothing are not contiguous
}

TEST_CASE("an empty view has no elements") {
  const view<const int> nothing;
  CHECK(nothing.size() == 0);
  CHECK(nothing.begin() == nothing.end());
  CHECK(nothing.data() == nullptr);
}

TEST_CASE("large strides do not overflow") {
  // no memory behind it: only addresses are formed
  const view<char, 3> v(nullptr, {40000, 40000, 40000});
  CHECK(v.stride(0) == std::int64_t{40000} * 40000);
}

#if ZOOMR_CHECKED
TEST_CASE("bounds are checked in debug builds") {
  auto numbers = counted(6);
  const view<int, 2> v(numbers.data(), {2, 3});
  CHECK_THROWS_AS(v(2, 0), precondition_error);
  CHECK_THROWS_AS(v(0, 3), precondition_error);
  CHECK_THROWS_AS(v(-1, 0), precondition_error);
  CHECK_THROWS_AS(v[2], precondition_error);
  CHECK_THROWS_AS(v.slice(1, 3), precondition_error);
  CHECK_THROWS_AS(v.slice(2, 1), precondition_error);
  const view<int> flat = numbers;
  CHECK_THROWS_AS(flat[6], precondition_error);
  CHECK_THROWS_AS(flat[-1], precondition_error);
}
#endif

}  // namespace zoomr

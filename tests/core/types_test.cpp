// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/core/types.hpp>

#include <bit>
#include <cmath>  // std::isnan, std::nextafter

namespace zoomr {

namespace {

float rounded(float value) { return to_float(from_float<bfloat16>(value)); }

/// The nearest of all bfloat16 numbers, ties to the even one, found without looking at bits of the float: `below`
/// and `above` are the two neighbours on bfloat16's grid.
float nearest(float value, bfloat16 below, bfloat16 above) {
  const double to_below = std::fabs(static_cast<double>(value) - static_cast<double>(to_float(below)));
  // a float cannot express 2^128, which is where the grid would go on
  const double grid_above = to_float(above) == infinity ? 0x1p128 : static_cast<double>(to_float(above));
  const double to_above = std::fabs(grid_above - static_cast<double>(value));
  if (to_below != to_above) return to_below < to_above ? to_float(below) : to_float(above);
  return below.bits % 2 == 0 ? to_float(below) : to_float(above);
}

}  // namespace

TEST_CASE("every bfloat16 survives the way to float and back") {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const bfloat16 stored{static_cast<std::uint16_t>(bits)};
    const float value = to_float(stored);
    CAPTURE(bits);
    if (std::isnan(value)) {
      REQUIRE(std::isnan(rounded(value)));
    } else {
      REQUIRE(from_float<bfloat16>(value) == stored);
    }
  }
}

TEST_CASE("a float is rounded to the nearest bfloat16, ties to even") {
  // Between each two neighbours: both ends, the middle, the floats beside it, and some others.
  unit::random random(1);
  for (std::uint32_t bits = 0; bits < 0x7f80u; ++bits) {
    const bfloat16 below{static_cast<std::uint16_t>(bits)};
    const bfloat16 above{static_cast<std::uint16_t>(bits + 1)};
    const std::uint32_t others[] = {0x0001u, 0x7fffu, 0x8000u,
                                    0x8001u, 0xffffu, static_cast<std::uint32_t>(random.below(0x10000))};
    for (const std::uint32_t low : others) {
      const float value = std::bit_cast<float>((bits << 16) | low);
      const float expected = nearest(value, below, above);
      CAPTURE(value);
      REQUIRE(unit::same_bits(rounded(value), expected));
      REQUIRE(unit::same_bits(rounded(-value), -expected));
    }
  }
}

TEST_CASE("infinities stay, too large becomes infinite, NaN stays NaN") {
  CHECK(rounded(infinity) == infinity);
  CHECK(rounded(-infinity) == -infinity);
  CHECK(rounded(std::numeric_limits<float>::max()) == infinity);
  CHECK(rounded(std::numeric_limits<float>::lowest()) == -infinity);
  CHECK(std::isnan(rounded(not_a_number)));
  CHECK(std::isnan(rounded(-not_a_number)));
  // NaNs whose mark lies only in the half that is cut off must not become an infinity
  for (const std::uint32_t low : {1u, 2u, 0x7fffu, 0x8000u, 0xffffu}) {
    CHECK(std::isnan(rounded(std::bit_cast<float>(0x7f800000u | low))));
    CHECK(std::isnan(rounded(std::bit_cast<float>(0xff800000u | low))));
  }
  CHECK(unit::same_bits(rounded(-0.0f), -0.0f));
}

TEST_CASE("a float is stored as it is") {
  for (const float value : {0.0f, -0.0f, 1.5f, infinity, -infinity, not_a_number, 1e-42f}) {
    CHECK(unit::same_bits(to_float(from_float<float>(value)), value));
  }
}

TEST_CASE("classes of a token can be joined and asked for one by one") {
  using enum token_class;
  const token_class both = delimiter | summary_end;
  CHECK(has(both, delimiter));
  CHECK(has(both, summary_end));
  CHECK(has(both, delimiter | thought_begin));
  CHECK_FALSE(has(both, thought_begin | thought_end | summary_begin));
  CHECK_FALSE(has(plain, both));
  CHECK_FALSE(has(both, plain));
  CHECK((plain | delimiter) == delimiter);
}

}  // namespace zoomr

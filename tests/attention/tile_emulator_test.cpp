// SPDX-License-Identifier: Apache-2.0
// The emulated tiles against plain loops: what the tests of attention in tiles rely on.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <support/tile_emulator.hpp>

#include <bit>     // std::bit_cast
#include <vector>  // std::vector

namespace zoomr_test::tiles {
namespace {

/// Tiles 1 (a), 2 (b) and 3 (the sum), for `rows` rows of a, and `pairs` pairs of numbers in each.
shapes shapes_of(int rows, int pairs, int columns) {
  shapes made;
  made.palette = 1;
  made.rows[1] = made.rows[3] = static_cast<std::uint8_t>(rows);
  made.rows[2] = static_cast<std::uint8_t>(pairs);
  made.row_bytes[1] = static_cast<std::uint16_t>(4 * pairs);
  made.row_bytes[2] = made.row_bytes[3] = static_cast<std::uint16_t>(4 * columns);
  return made;
}
void configure_by_instruction(const shapes& to) { asm volatile("ldtilecfg %0" : : "m"(to)); }

float wide(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

}  // namespace

TEST_CASE("tiles that are loaded and stored are rows of memory, whatever is between them, and nothing after them") {
  emulate();
  unit::random random(1);
  for (const int rows : {1, 2, 7, 16}) {
    for (const int pairs : {1, 3, 16}) {
      configure_by_instruction(shapes_of(rows, pairs, 16));
      shapes told;
      asm volatile("sttilecfg %0" : "=m"(told));
      REQUIRE(told.rows[1] == rows);
      REQUIRE(told.row_bytes[1] == 4 * pairs);
      std::vector<std::uint32_t> from(16 * 20), to(16 * 24, 7u);
      for (auto& word : from) word = static_cast<std::uint32_t>(random.bits());
      const std::int64_t from_apart = 80, to_apart = 96;
      // Places with and without an offset, and registers of both halves.
      register std::uint32_t* const at asm("r13") = to.data();
      register std::int64_t apart asm("r12") = to_apart;
      asm volatile("tileloadd 0(%0,%1,1), %%tmm1" : : "r"(from.data()), "r"(from_apart) : "memory");
      asm volatile("tilestored %%tmm1, (%0,%1,1)" : : "r"(at), "r"(apart) : "memory");
      for (int r = 0; r < 16; ++r) {
        for (int i = 0; i < 24; ++i) {
          const bool in_tile = r < rows && i < pairs;
          REQUIRE(to[unit::size(r * 24 + i)] == (in_tile ? from[unit::size(r * 20 + i)] : 7u));
        }
      }
      asm volatile("tileloaddt1 64(%0,%1,1), %%tmm1" : : "r"(from.data() - 16), "r"(from_apart) : "memory");
      asm volatile("tilezero %%tmm3\n\ttilestored %%tmm1, 512(%0,%1,1)" : : "r"(at - 128), "r"(apart) : "memory");
      REQUIRE(to[0] == from[0]);
      asm volatile("tilerelease");
      asm volatile("sttilecfg %0" : "=m"(told));
      REQUIRE(told.palette == 0);
    }
  }
}

TEST_CASE("products of tiles are those of a plain loop, with even and odd numbers apart, and no subnormal numbers") {
  emulate();
  unit::random random(2);
  const std::uint16_t odd[] = {0x0001, 0x8003, 0x7f80, 0xff80, 0x7fc0, 0x0080, 0x0000, 0x8000};
  for (int round = 0; round < 40; ++round) {
    const int rows = random.between(1, 16), pairs = random.between(1, 16), columns = random.between(1, 16);
    std::vector<std::uint16_t> a(16 * 32), b(16 * 32);
    std::vector<float> sum = random.floats(256);
    for (auto* numbers : {&a, &b}) {
      for (auto& bits : *numbers) {
        bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(random.uniform(-2.0f, 2.0f)) >> 16);
        if (round % 4 == 3 && random.below(200) == 0) bits = odd[random.below(8)];
      }
    }
    if (round % 4 == 3) sum[0] = 1e-40f;
    std::vector<float> expected = sum;
    for (int m = 0; m < rows; ++m) {
      for (int n = 0; n < columns; ++n) {
        float even = 0.0f, uneven = 0.0f;
        const auto number = [&](std::uint16_t bits) { return (bits & 0x7f80) == 0 ? 0.0f : wide(bits); };
        for (int k = 0; k < pairs; ++k) {
          const std::uint16_t* const left = &a[unit::size(m * 32 + 2 * k)];
          const std::uint16_t* const right = &b[unit::size(k * 32 + 2 * n)];
          even = std::fma(number(left[0]), number(right[0]), even);
          uneven = std::fma(number(left[1]), number(right[1]), uneven);
        }
        float& out = expected[unit::size(m * 16 + n)];
        out = (std::fabs(out) < 0x1p-126f ? 0.0f : out) + (even + uneven);
      }
    }
    configure_by_instruction(shapes_of(rows, pairs, columns));
    const std::int64_t line = 64;
    asm volatile(
        "tileloadd (%0,%3,1), %%tmm1\n\ttileloadd (%1,%3,1), %%tmm2\n\ttileloadd (%2,%3,1), %%tmm3\n\t"
        "tdpbf16ps %%tmm2, %%tmm1, %%tmm3\n\ttilestored %%tmm3, (%2,%3,1)\n\ttilerelease"
        :
        : "r"(a.data()), "r"(b.data()), "r"(sum.data()), "r"(line)
        : "memory");
    CAPTURE(round);
    for (std::size_t i = 0; i < sum.size(); ++i) REQUIRE(unit::same_bits(sum[i], expected[i]));
  }
}

TEST_CASE("what the processor would refuse is refused") {
  shapes wrong = shapes_of(16, 16, 16);
  wrong.rows[4] = 17;
  CHECK_FALSE(configure(reinterpret_cast<const unsigned char*>(&wrong)));
  wrong = shapes_of(16, 16, 16);
  wrong.reserved[3] = 1;
  CHECK_FALSE(configure(reinterpret_cast<const unsigned char*>(&wrong)));
  const shapes right = shapes_of(3, 5, 7);
  REQUIRE(configure(reinterpret_cast<const unsigned char*>(&right)));
  CHECK(multiply(3, 1, 2));
  CHECK_FALSE(multiply(3, 1, 1));
  CHECK_FALSE(multiply(1, 3, 2));
  CHECK_FALSE(multiply(3, 1, 4));  // no such tile
}

}  // namespace zoomr_test::tiles

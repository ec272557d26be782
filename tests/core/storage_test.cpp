// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <core/type_lists.hpp>
#include <zoomr/core/storage_types.hpp>

#include <algorithm>  // std::count, std::lower_bound
#include <array>      // std::array
#include <bit>        // std::bit_cast
#include <cmath>      // std::fabs, std::isfinite, std::isinf, std::isnan, std::ldexp, std::nextafter
#include <cstring>    // std::memcpy
#include <string>     // std::string
#include <vector>     // std::vector

namespace zoomr {

namespace {

/// What the bits of a type mean, from its definition alone.
template <class T>
struct meaning;
template <>
struct meaning<bfloat16> {
  static constexpr int mantissa = 7, least = -126;
  static constexpr std::uint32_t largest = 0x7f7f, sign = 0x8000;
  static constexpr bool infinite = true;
};
template <>
struct meaning<float16> {
  static constexpr int mantissa = 10, least = -14;
  static constexpr std::uint32_t largest = 0x7bff, sign = 0x8000;
  static constexpr bool infinite = true;
};
template <>
struct meaning<float8> {
  static constexpr int mantissa = 3, least = -6;
  static constexpr std::uint32_t largest = 0x7e, sign = 0x80;
  static constexpr bool infinite = false;
};

using small_floats = std::tuple<bfloat16, float16, float8>;

/// The number that stands for the bits of a magnitude, as the formula of the format has it.
template <class T>
double magnitude_of(std::uint32_t bits) {
  using of = meaning<T>;
  const auto field = static_cast<int>(bits >> of::mantissa);
  const auto fraction = static_cast<int>(bits & ((1u << of::mantissa) - 1));
  if (field == 0) return std::ldexp(fraction, of::least - of::mantissa);
  return std::ldexp(fraction + (1 << of::mantissa), of::least - of::mantissa + field - 1);
}

template <class T>
T stored_bits(std::uint32_t bits) {
  return {static_cast<decltype(T::bits)>(bits)};
}

/// All magnitudes, ascending, and at the end the number where the grid would go on.
template <class T>
std::vector<double> grid_of() {
  std::vector<double> grid;
  for (std::uint32_t bits = 0; bits <= meaning<T>::largest + 1; ++bits) grid.push_back(magnitude_of<T>(bits));
  return grid;
}

/// The bits of the nearest number of a grid, ties to even, found by looking at the numbers only.
template <class T>
std::uint32_t nearest_in(const std::vector<double>& grid, float value) {
  using of = meaning<T>;
  const std::uint32_t sign = std::signbit(value) ? of::sign : 0;
  const double size = std::fabs(static_cast<double>(value));
  const auto above = std::lower_bound(grid.begin(), grid.end(), size);
  auto place = static_cast<std::uint32_t>(above - grid.begin());
  if (above == grid.end()) --place;
  if (place > 0) {
    const double up = grid[place] - size;
    const double down = size - grid[place - 1];
    if (down < up || (down == up && (place - 1) % 2 == 0)) --place;
  }
  return sign | (of::infinite ? place : std::min(place, of::largest));
}

template <class T>
void check_nearest(const std::vector<double>& grid, float value) {
  CAPTURE(value);
  REQUIRE(from_float<T>(value) == stored_bits<T>(nearest_in<T>(grid, value)));
  REQUIRE(from_float<T>(-value) == stored_bits<T>(nearest_in<T>(grid, -value)));
}

/// The numbers at, beside and between two magnitudes.
template <class Check>
void for_each_between(float low, float high, unit::random& random, Check check) {
  const float middle = low + (high - low) / 2;
  for (const float value : {low, middle, high}) {
    check(value);
    check(std::nextafter(value, -infinity));
    check(std::nextafter(value, infinity));
  }
  for (int i = 0; i < 4; ++i) check(random.uniform(low, high));
}

float rounded_bfloat16(float value) { return to_float(from_float<bfloat16>(value)); }

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("every number means what the definition of its format says", T, meant) {
  using of = meaning<T>;
  for (std::uint32_t bits = 0; bits <= of::largest; ++bits) {
    CAPTURE(bits);
    const auto want = static_cast<float>(magnitude_of<T>(bits));
    REQUIRE(unit::same_bits(to_float(stored_bits<T>(bits)), want));
    REQUIRE(unit::same_bits(to_float(stored_bits<T>(bits | of::sign)), -want));
  }
  for (std::uint32_t bits = of::largest + 1; bits < of::sign; ++bits) {
    CAPTURE(bits);
    const bool is_infinity = of::infinite && bits == of::largest + 1;
    for (const std::uint32_t sign : {0u, of::sign}) {
      const float value = to_float(stored_bits<T>(bits | sign));
      REQUIRE((is_infinity ? value == (sign != 0 ? -infinity : infinity) : std::isnan(value)));
    }
  }
}
TEST_CASE_TEMPLATE_APPLY(meant, small_floats);

TEST_CASE_TEMPLATE_DEFINE("rounded down it is the largest number that is not above, rounded up the smallest not below",
                          T, rounded_outwards) {
  const std::vector<double> grid = grid_of<T>();
  unit::random random(2);
  const auto check = [&](float value) {
    CAPTURE(value);
    const T down = from_float_down<T>(value);
    const T up = from_float_up<T>(value);
    const auto size = static_cast<double>(std::fabs(value));
    if (!meaning<T>::infinite && size > grid[grid.size() - 2]) return;    // below
    const auto above = std::lower_bound(grid.begin(), grid.end(), size);  // may be infinity
    const double outer = above == grid.end() || above + 1 == grid.end() ? infinity : *above;
    const double inner = size == outer || above == grid.begin() ? outer : *(above - 1);
    REQUIRE(static_cast<double>(to_float(down)) == (value < 0 ? -outer : inner));
    REQUIRE(static_cast<double>(to_float(up)) == (value < 0 ? -inner : outer));
  };
  for (std::size_t i = 0; i + 2 < grid.size(); ++i) {
    for_each_between(static_cast<float>(grid[i]), static_cast<float>(grid[i + 1]), random, [&](float value) {
      check(value);
      check(-value);
    });
  }
  for (int i = 0; i < 300000; ++i) {
    const float value = random.any_float();
    if (std::isnan(value)) {
      REQUIRE(std::isnan(to_float(from_float_down<T>(value))));
      REQUIRE(std::isnan(to_float(from_float_up<T>(value))));
    } else if (std::fabs(value) <= static_cast<float>(grid[grid.size() - 2])) {
      check(value);
    }
  }
  const float largest = static_cast<float>(grid[grid.size() - 2]);
  const float beyond = std::nextafter(largest, infinity);
  CHECK(to_float(from_float_down<T>(beyond)) == largest);
  CHECK(to_float(from_float_up<T>(-beyond)) == -largest);
  if (!meaning<T>::infinite) {  // there is nothing beyond the largest
    CHECK(std::isnan(to_float(from_float_up<T>(beyond))));
    CHECK(std::isnan(to_float(from_float_down<T>(-beyond))));
    return;
  }
  CHECK(to_float(from_float_up<T>(beyond)) == infinity);
  CHECK(to_float(from_float_down<T>(-beyond)) == -infinity);
  CHECK(to_float(from_float_down<T>(infinity)) == infinity);
  CHECK(to_float(from_float_up<T>(-infinity)) == -infinity);
}
TEST_CASE_TEMPLATE_APPLY(rounded_outwards, small_floats);

TEST_CASE("an int8 is rounded down to the largest that is not above, and up") {
  unit::random random(3);
  const auto check = [](float value) {
    CAPTURE(value);
    REQUIRE(to_float(from_float_down<int8>(value)) == std::floor(value));
    REQUIRE(to_float(from_float_up<int8>(value)) == std::ceil(value));
  };
  for (int i = 0; i < 100000; ++i) check(random.uniform(-127.0f, 127.0f));
  for (float whole = -127.0f; whole <= 127.0f; whole += 0.5f) {
    check(whole);
    if (whole < 127.0f) check(std::nextafter(whole, infinity));
    if (whole > -127.0f) check(std::nextafter(whole, -infinity));
  }
  for (const float tiny : {0x1p-149f, -0x1p-149f, 0x1p-30f, -0x1p-30f, -0.0f}) check(tiny);
}

TEST_CASE_TEMPLATE_DEFINE("every number survives the way to float and back", T, survives) {
  for (std::uint32_t bits = 0; bits < 2 * meaning<T>::sign; ++bits) {
    const T stored = stored_bits<T>(bits);
    const float value = to_float(stored);
    CAPTURE(bits);
    if (std::isnan(value)) {
      REQUIRE(std::isnan(to_float(from_float<T>(value))));
    } else {
      REQUIRE(from_float<T>(value) == stored);
    }
  }
}
TEST_CASE_TEMPLATE_APPLY(survives, small_floats);

TEST_CASE_TEMPLATE_DEFINE("a float is rounded to the nearest number, ties to even", T, rounded) {
  const std::vector<double> grid = grid_of<T>();
  unit::random random(1);
  for (std::size_t i = 0; i + 2 < grid.size(); ++i) {
    for_each_between(static_cast<float>(grid[i]), static_cast<float>(grid[i + 1]), random,
                     [&](float value) { check_nearest<T>(grid, value); });
  }
  for (int i = 0; i < 300000; ++i) {
    const float value = random.any_float();
    if (std::isnan(value)) {
      REQUIRE(std::isnan(to_float(from_float<T>(value))));
    } else {
      check_nearest<T>(grid, value);
    }
    check_nearest<T>(grid, random.uniform(-4.0f, 4.0f));
    check_nearest<T>(grid, std::ldexp(random.uniform(1.0f, 2.0f), random.between(-30, 17)));
  }
}
TEST_CASE_TEMPLATE_APPLY(rounded, small_floats);

TEST_CASE("infinities stay, too large becomes infinite, NaN stays NaN: bfloat16") {
  CHECK(rounded_bfloat16(infinity) == infinity);
  CHECK(rounded_bfloat16(-infinity) == -infinity);
  CHECK(rounded_bfloat16(std::numeric_limits<float>::max()) == infinity);
  CHECK(rounded_bfloat16(std::numeric_limits<float>::lowest()) == -infinity);
  // NaNs whose mark lies only in the half that is cut off must not become an infinity
  for (const std::uint32_t low : {1u, 2u, 0x7fffu, 0x8000u, 0xffffu}) {
    CHECK(std::isnan(rounded_bfloat16(std::bit_cast<float>(0x7f800000u | low))));
    CHECK(std::isnan(rounded_bfloat16(std::bit_cast<float>(0xff800000u | low))));
  }
}

TEST_CASE("infinities stay, from 65520 a number is infinite, the least step is 2^-24: float16") {
  const auto bits = [](float value) { return from_float<float16>(value).bits; };
  CHECK(bits(infinity) == 0x7c00);
  CHECK(bits(-infinity) == 0xfc00);
  CHECK(bits(65504.0f) == 0x7bff);
  CHECK(bits(std::nextafter(65520.0f, 0.0f)) == 0x7bff);
  CHECK(bits(65520.0f) == 0x7c00);
  CHECK(bits(-65520.0f) == 0xfc00);
  CHECK(bits(std::numeric_limits<float>::max()) == 0x7c00);
  CHECK(bits(0x1p-24f) == 0x0001);
  CHECK(bits(0x1p-25f) == 0x0000);
  CHECK(bits(std::nextafter(0x1p-25f, 1.0f)) == 0x0001);
  CHECK(bits(0x1.8p-24f) == 0x0002);
  CHECK(bits(0x1.ff8p-15f) == 0x03ff);
  CHECK(bits(0x1.ffcp-15f) == 0x0400);  // half-way between the largest subnormal and the least normal number
  CHECK(bits(-0.0f) == 0x8000);
  CHECK(bits(-1e-45f) == 0x8000);
  CHECK(bits(not_a_number) == 0x7fff);
  CHECK(bits(-not_a_number) == 0x7fff);
  for (const std::uint32_t low : {1u, 0x1fffu, 0x2000u, 0x400000u, 0x7fffffu}) {
    CHECK(std::isnan(to_float(from_float<float16>(std::bit_cast<float>(0x7f800000u | low)))));
    CHECK(std::isnan(to_float(from_float<float16>(std::bit_cast<float>(0xff800000u | low)))));
  }
}

TEST_CASE("beyond 448 is 448, infinities too, NaN stays NaN: float8") {
  const auto bits = [](float value) { return from_float<float8>(value).bits; };
  for (const float value : {448.0f, 449.0f, 464.0f, 465.0f, 480.0f, 512.0f, 1e30f, infinity}) {
    CHECK(bits(value) == 0x7e);
    CHECK(bits(-value) == 0xfe);
  }
  CHECK(bits(432.0f) == 0x7e);  // half-way from 416: to even
  CHECK(bits(std::nextafter(432.0f, 0.0f)) == 0x7d);
  CHECK(bits(0x1p-9f) == 0x01);
  CHECK(bits(0x1p-10f) == 0x00);
  CHECK(bits(std::nextafter(0x1p-10f, 1.0f)) == 0x01);
  CHECK(bits(0x1.8p-9f) == 0x02);
  CHECK(bits(-0.0f) == 0x80);
  CHECK(bits(not_a_number) == 0x7f);
  CHECK(bits(-not_a_number) == 0x7f);
  CHECK(bits(std::bit_cast<float>(0x7f800001u)) == 0x7f);
  CHECK(to_float(float8{0x7e}) == 448.0f);
  CHECK(std::isnan(to_float(float8{0x7f})));
  CHECK(std::isnan(to_float(float8{0xff})));
}

TEST_CASE("int8 is a whole number: the nearest, ties to even, never beyond 127; NaN is 0") {
  for (int number = -128; number <= 127; ++number) {
    const int8 stored{static_cast<std::int8_t>(number)};
    CHECK(to_float(stored) == static_cast<float>(number));
    CHECK(from_float<int8>(to_float(stored)).bits == (number == -128 ? -127 : number));
  }
  unit::random random(2);
  const auto check = [](float value) {
    int nearest = -127;
    for (int number = -126; number <= 127; ++number) {
      const double nearer = std::fabs(double{value} - number) - std::fabs(double{value} - nearest);
      if (nearer < 0 || (nearer == 0 && number % 2 == 0)) nearest = number;
    }
    CAPTURE(value);
    REQUIRE(from_float<int8>(value).bits == nearest);
  };
  for (int number = -130; number < 130; ++number) {
    for_each_between(static_cast<float>(number), static_cast<float>(number + 1), random, check);
  }
  for (int i = 0; i < 20000; ++i) {
    check(random.uniform(-140.0f, 140.0f));
    check(random.uniform(-1.0f, 1.0f));
    if (const float value = random.any_float(); !std::isnan(value) && std::fabs(value) < 0x1p40f) check(value);
  }
  for (const float value : {0.0f, -0.0f, 1e-45f, -1e-45f, 0x1.fffffep-2f, 0.5f, -0.5f}) check(value);
  for (const float value : {127.5f, 128.0f, 0x1p23f, 0x1p31f, 3e38f, infinity}) {
    CHECK(from_float<int8>(value).bits == 127);
    CHECK(from_float<int8>(-value).bits == -127);
  }
  CHECK(from_float<int8>(not_a_number).bits == 0);
  CHECK(from_float<int8>(-not_a_number).bits == 0);
  CHECK(from_float<int8>(std::bit_cast<float>(0x7fc00055u)).bits == 0);
}

#if defined(__FLT16_MANT_DIG__) || defined(__ARM_FP16_FORMAT_IEEE)
#if defined(__ARM_FP16_FORMAT_IEEE)  // g++ 12 has no _Float16 there
using compilers_half = __fp16;
#else
__extension__ using compilers_half = _Float16;
#endif

TEST_CASE("float16 is the compiler's own half") {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto half = std::bit_cast<compilers_half>(static_cast<std::uint16_t>(bits));
    REQUIRE(unit::same_bits(to_float(stored_bits<float16>(bits)), static_cast<float>(half)));
  }
  unit::random random(3);
  const auto check = [](float value) {
    CAPTURE(value);
    const auto want = std::bit_cast<std::uint16_t>(static_cast<compilers_half>(value));
    if (std::isnan(value)) {
      REQUIRE(std::isnan(to_float(from_float<float16>(value))));
    } else {
      REQUIRE(from_float<float16>(value).bits == want);
    }
  };
  for (std::uint32_t bits = 0; bits < 0x7c00u; ++bits) {
    for_each_between(to_float(stored_bits<float16>(bits)), to_float(stored_bits<float16>(bits + 1)), random, check);
  }
  for (int i = 0; i < 300000; ++i) {
    check(random.any_float());
    check(std::ldexp(random.uniform(-2.0f, 2.0f), random.between(-30, 17)));
  }
}
#endif

TEST_CASE_TEMPLATE_DEFINE("the largest number is finite, and what is beyond it is not stored as a smaller one", T,
                          largest) {
  constexpr float largest = storage_traits<T>::largest;
  CHECK(std::isfinite(largest));
  CHECK(to_float(from_float<T>(largest)) == largest);
  CHECK(to_float(from_float<T>(-largest)) == -largest);
  const float beyond = to_float(from_float<T>(largest * 1.1f));
  CHECK((beyond == largest || beyond == infinity));
}
TEST_CASE_TEMPLATE_APPLY(largest, unit::as_tuple<number_types>);

TEST_CASE("storage types have names of their own, which a saved sequence has room for") {
  std::vector<std::string> names;
  for_each_type(storage_types{}, [&]<class T>() { names.push_back(storage_name<T>()); });
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK(name.size() <= 16);
    CHECK(std::count(names.begin(), names.end(), name) == 1);
  }
  const auto sentence = [](auto list) { return std::string(detail::sentence_on_types("", list, ".").text); };
  CHECK(sentence(type_list<q8_0>{}) == "q8_0.");
  CHECK(sentence(type_list<float, q8_0>{}) == "float or q8_0.");
  CHECK(sentence(type_list<int8, float, q8_0>{}) == "int8, float or q8_0.");
}

TEST_CASE("a float is stored as it is") {
  for (const float value : {0.0f, -0.0f, 1.5f, infinity, -infinity, not_a_number, 1e-42f}) {
    CHECK(unit::same_bits(to_float(from_float<float>(value)), value));
  }
}

namespace {

/// A block as bytes, read and written by the format's definition alone, in double.
template <class T>
using block_bytes = std::array<unsigned char, sizeof(T) * std::size_t{block_size<T>}>;

template <class T>
constexpr int least_code = std::is_same_v<T, q8_0> ? -127 : -8;
template <class T>
constexpr int largest_code = std::is_same_v<T, q8_0> ? 127 : 7;

template <class T>
int code_of(const block_bytes<T>& block, std::size_t i) {
  if constexpr (std::is_same_v<T, q8_0>) return block[2 + i] < 128 ? block[2 + i] : block[2 + i] - 256;
  return (i < 16 ? block[2 + i] % 16 : block[2 + i - 16] / 16) - 8;
}
template <class T>
double scale_of_block(const block_bytes<T>& block) {
  const std::uint32_t bits = block[0] + 256u * block[1], magnitude = bits & 0x7fffu;
  if (magnitude > 0x7c00u) return std::nan("");
  const double size = magnitude == 0x7c00u ? HUGE_VAL : magnitude_of<float16>(magnitude);
  return bits < 0x8000u ? size : -size;
}

template <class T>
block_bytes<T> stored_block(const std::vector<float>& numbers, float scale = 1.0f) {
  T block[std::size_t{block_size<T>}];
  store_block(numbers.data(), scale, block);
  block_bytes<T> bytes;
  std::memcpy(bytes.data(), block, sizeof block);
  return bytes;
}
template <class T>
std::vector<float> numbers_of(const block_bytes<T>& bytes) {
  T block[std::size_t{block_size<T>}];
  std::memcpy(static_cast<void*>(block), bytes.data(), sizeof block);
  std::vector<float> numbers;
  for (index_t i = 0; i < 32; ++i) numbers.push_back(number_at(block, i));
  return numbers;
}

/// What `store_block` must have made of these numbers.
template <class T>
void check_block(const std::vector<float>& numbers) {
  float most = 0.0f;  // the first of the largest magnitude
  for (const float number : numbers) most = std::fabs(number) > std::fabs(most) ? number : most;
  const float wanted = std::is_same_v<T, q8_0> ? std::fabs(most) / 127.0f : most / -8.0f;
  const float bounded = std::min(std::max(wanted, -65504.0f), 65504.0f);
  const block_bytes<T> block = stored_block<T>(numbers);
  REQUIRE(block[0] + 256u * block[1] == from_float<float16>(bounded).bits);
  const double scale = scale_of_block<T>(block);
  for (std::size_t i = 0; i < 32; ++i) {
    const int code = code_of<T>(block, i);
    CAPTURE(i);
    CAPTURE(numbers[i]);
    CAPTURE(scale);
    REQUIRE(code >= least_code<T>);
    REQUIRE(code <= largest_code<T>);
    if (scale == 0.0 || std::isnan(numbers[i])) {
      REQUIRE(code == 0);
      continue;
    }
    const double exact = std::isinf(numbers[i]) ? (double{numbers[i]} > 0.0) == (scale > 0.0) ? 1e9 : -1e9
                                                : double{static_cast<float>(numbers[i] / static_cast<float>(scale))};
    if (exact >= largest_code<T>) {
      REQUIRE(code == largest_code<T>);
    } else if (exact <= least_code<T>) {
      REQUIRE(code == least_code<T>);
    } else {
      const double off = std::fabs(exact - code);
      REQUIRE((off < 0.5 || (off == 0.5 && code % 2 == 0)));
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("a block's numbers are its scale times its codes, exactly, of every scale", T, q8_0, q4_0) {
  unit::random random(5);
  block_bytes<T> block;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    for (unsigned char& byte : block) byte = static_cast<unsigned char>(random.below(256));
    block[0] = static_cast<unsigned char>(bits & 0xffu), block[1] = static_cast<unsigned char>(bits >> 8);
    const std::vector<float> numbers = numbers_of<T>(block);
    const double scale = scale_of_block<T>(block);
    for (std::size_t i = 0; i < 32; ++i) {
      const double exact = scale * code_of<T>(block, i);
      REQUIRE((std::isnan(exact) ? std::isnan(numbers[i]) : double{numbers[i]} == exact));
    }
  }
}

TEST_CASE_TEMPLATE("32 floats become a block by the rule of the format: nearest, ties to even, never beyond", T, q8_0,
                   q4_0) {
  unit::random random(6);
  std::vector<float> numbers(32);
  const auto check_filled = [&](auto number) {
    for (float& each : numbers) each = number();
    check_block<T>(numbers);
  };
  for (int i = 0; i < 3000; ++i) {
    const float size = std::ldexp(1.0f, random.between(-30, 30));
    check_filled([&] { return random.uniform(-size, size); });
    check_filled([&] { return random.below(3) == 0 ? random.uniform(0.0f, size) : 0.0f; });
    check_filled([&] { return random.any_float(); });
    check_filled([&] { return size * 0.5f * static_cast<float>(random.between(-16, 16)); });  // ties of q4_0
    check_filled([&] { return size * 0.5f * static_cast<float>(random.between(-254, 254)); });
  }
  check_filled([] { return 0.0f; });
  check_filled([] { return -0.0f; });
  check_filled([] { return infinity; });
  check_filled([] { return not_a_number; });
  check_filled([] { return 1e-45f; });
  check_filled([] { return -3.4e38f; });
  for (const float odd : {infinity, -infinity, not_a_number}) {
    check_filled([&] { return random.below(8) == 0 ? odd : random.uniform(-1.0f, 1.0f); });
  }
}

TEST_CASE("a block of q4_0 takes its sign from the first of its largest numbers") {
  std::vector<float> numbers(32, 1.0f);
  numbers[9] = -8.0f, numbers[20] = 8.0f;
  CHECK(scale_of_block<q4_0>(stored_block<q4_0>(numbers)) == 1.0);
  CHECK(numbers_of<q4_0>(stored_block<q4_0>(numbers))[20] == 7.0f);
  std::swap(numbers[9], numbers[20]);
  CHECK(scale_of_block<q4_0>(stored_block<q4_0>(numbers)) == -1.0);
  CHECK(numbers_of<q4_0>(stored_block<q4_0>(numbers))[20] == -7.0f);
}

TEST_CASE("a block of mxfp8 is 2^(x - 127) times its elements, exactly, of all scales and elements") {
  block_bytes<mxfp8> block;
  for (std::uint32_t x = 0; x < 256; ++x) {
    for (std::uint32_t first = 0; first < 256; first += 32) {
      block[0] = static_cast<unsigned char>(x);
      for (std::uint32_t i = 0; i < 32; ++i) block[1 + i] = static_cast<unsigned char>(first + i);
      const std::vector<float> numbers = numbers_of<mxfp8>(block);
      for (std::uint32_t i = 0; i < 32; ++i) {
        const std::uint32_t magnitude = (first + i) & 0x7fu;
        CAPTURE(x);
        CAPTURE(first + i);
        if (x == 255 || magnitude == 0x7f) {
          REQUIRE(std::isnan(numbers[i]));
          continue;
        }
        const double size = std::ldexp(magnitude_of<float8>(magnitude), static_cast<int>(x) - 127);
        const double exact = first + i < 128 ? size : -size;
        REQUIRE(std::signbit(numbers[i]) == (first + i >= 128));
        if (size >= 0x1p128) {
          REQUIRE(std::isinf(numbers[i]));
        } else {
          REQUIRE(double{numbers[i]} == exact);
        }
      }
    }
  }
}

TEST_CASE("32 floats become a block of mxfp8: floor(log2(largest)) - 8, the nearest elements, saturating") {
  unit::random random(8);
  const std::vector<double> grid = grid_of<float8>();
  std::vector<float> numbers(32);
  const auto check_filled = [&](auto number) {
    for (float& each : numbers) each = number();
    float most = 0.0f;
    for (const float each : numbers) most = std::max(most, std::fabs(each));  // not NaN
    const float finite = std::fmin(most, 3.4e38f);
    const int power = finite == 0.0f ? -127 : std::max(std::ilogb(finite) - 8, -127);
    const block_bytes<mxfp8> block = stored_block<mxfp8>(numbers);
    REQUIRE(block[0] == power + 127);
    for (std::size_t i = 0; i < 32; ++i) {
      CAPTURE(i);
      CAPTURE(numbers[i]);
      CAPTURE(power);
      if (std::isnan(numbers[i])) {
        REQUIRE(block[1 + i] == 0x7f);
        continue;
      }
      const double exact = std::ldexp(double{numbers[i]}, -power);
      REQUIRE(block[1 + i] == nearest_in<float8>(grid, static_cast<float>(std::fmin(std::fmax(exact, -448), 448))));
    }
  };
  for (int i = 0; i < 3000; ++i) {
    const float size = std::ldexp(1.0f, random.between(-149, 127));
    check_filled([&] { return random.uniform(-size, size); });
    check_filled([&] { return random.below(3) == 0 ? random.uniform(0.0f, size) : 0.0f; });
    check_filled([&] { return random.any_float(); });
    check_filled([&] { return size * static_cast<float>(random.between(-32, 32)) / 32.0f; });  // ties
  }
  for (const float same : {0.0f, -0.0f, infinity, -infinity, not_a_number, 1e-45f, 0x1p-119f, 0x1p-118f, -3.4e38f}) {
    check_filled([&] { return same; });
    check_filled([&] { return random.below(8) == 0 ? same : random.uniform(-1.0f, 1.0f); });
  }
}

TEST_CASE_TEMPLATE_DEFINE("what was stored in a block stays when it is stored again; a scale divides first", T,
                          stored_again) {
  unit::random random(7);
  for (int i = 0; i < 2000; ++i) {
    const std::vector<float> numbers = random.floats(32, -3.0f, 3.0f);
    const block_bytes<T> once = stored_block<T>(numbers);
    CHECK(stored_block<T>(numbers_of<T>(once)) == once);
    std::vector<float> larger = numbers, divided = numbers;
    for (float& number : larger) number *= 4.0f;
    CHECK(stored_block<T>(larger, 4.0f) == once);
    for (float& number : divided) number /= 0.37f;
    CHECK(stored_block<T>(numbers, 0.37f) == stored_block<T>(divided));
    std::vector<float> tiny = numbers;
    for (float& number : tiny) number *= 0x1p-128f;
    for (std::size_t d = 0; d < 32; ++d) divided[d] = tiny[d] / 0x1p-128f;
    CHECK(stored_block<T>(tiny, 0x1p-128f) == stored_block<T>(divided));  // the scale has no inverse
  }
}
TEST_CASE_TEMPLATE_APPLY(stored_again, unit::as_tuple<block_types>);

// Legal arguments of a kernel, of the size that they must have, and usable at compile time.
template <class T>
inline constexpr bool plain = std::is_trivially_copyable_v<T>&& std::is_standard_layout_v<T>&& to_float(T{}) == 0.0f &&
                              from_float<T>(1.5f) == from_float<T>(to_float(from_float<T>(1.5f)));
template <class... T>
constexpr bool all_plain(type_list<T...>) {
  return (plain<T> && ...);
}
static_assert(all_plain(unit::plain_types{}));
static_assert(sizeof(q8_0) == 2 && sizeof(q4_0) == 2 && alignof(q8_0) == 2 && alignof(q4_0) == 2);
static_assert(sizeof(mxfp8) == 1 && stored_size<mxfp8>(96) == 99);
static_assert(stored_size<q8_0>(96) * 2 == 102 && stored_size<q4_0>(96) * 2 == 54 && stored_size<float>(96) == 96);
static_assert(sizeof(bfloat16) == 2 && sizeof(float16) == 2 && sizeof(float8) == 1 && sizeof(int8) == 1);
static_assert(to_float(from_float<float16>(0.1f)) == 0.0999755859375f && from_float<float16>(65520.0f).bits == 0x7c00);
static_assert(to_float(from_float<float8>(0.1f)) == 0.1015625f && to_float(from_float<float8>(-1e9f)) == -448.0f);
static_assert(to_float(from_float<int8>(2.5f)) == 2.0f && to_float(from_float<int8>(-999.0f)) == -127.0f);

}  // namespace zoomr

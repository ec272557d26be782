// SPDX-License-Identifier: Apache-2.0
// L1. Rows that are stored in blocks of 32 numbers, each with a scale of its own: as ggml stores them, and by the
// microscaling format MXFP8, whose elements are E4M3.
//
//   type   a block                      bytes  numbers
//   q8_0   float16 scale, int8 n[32]       34  n[i] * scale
//   q4_0   float16 scale, uint8 n[16]      18  i < 16: ((n[i] & 15) - 8) * scale; above: ((n[i - 16] >> 4) - 8) * scale
//   mxfp8  uint8 x, float8 n[32]           33  n[i] * 2^(x - 127); an x of 255: NaN
//
// A stored number becomes a float exactly; one of mxfp8 that no float can hold, which is never stored here, becomes
// infinite. A block is aligned to its scale, and no multiple of anything larger: so the types here are the scale, of
// two bytes or one, which is what pointers and strides count, and stored_size() is how many a row takes.
// @source  OCP Microscaling Formats (MX) specification 1.0 for mxfp8; where its scale lies it leaves open
#pragma once

#include <zoomr/core/storage.hpp>

namespace zoomr::inline v0 {

/// Two bytes of a row of blocks with 8 bits for a number. The scale is a block's largest magnitude / 127.
struct q8_0 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(q8_0, q8_0) = default;
};

/// Two bytes of a row of blocks with 4 bits for a number. The scale is the number of largest magnitude / -8, so that it
/// becomes 0 of 0 to 15; of two such numbers the first counts.
struct q4_0 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(q4_0, q4_0) = default;
};

/// A byte of a row of blocks with 8 bits of floating point for a number. The scale is 2^(e - 8), if a block's largest
/// magnitude is at least 2^e and less than twice as large: so the largest is 256 to 448 scales, where it saturates.
struct mxfp8 {
  std::uint8_t bits = 0;
  friend constexpr bool operator==(mxfp8, mxfp8) = default;
};

inline constexpr index_t numbers_in_block = 32;

namespace detail {

struct rows_of_blocks {
  static constexpr bool scales_rows = false, transforms = false;
};

/// Codes that are numbers of a storage type of 8 bits.
template <class Number>
struct codes_in : rows_of_blocks {
  using element = Number;
  static constexpr index_t code_bits = 8;
  ZOOMR_HD static constexpr float number(unsigned code) {
    return to_float(Number{static_cast<decltype(Number::bits)>(code)});
  }
  static constexpr int code(float number) { return from_float<Number>(number).bits; }
};

/// A scale that is a float16.
template <class T>
ZOOMR_HD constexpr float float16_scale(T stored) {
  return to_float(float16{stored.bits});
}
/// The nearest one, which is the largest finite one at most.
template <class T>
constexpr T nearest_float16_scale(float scale) {
  constexpr float most = storage_traits<float16>::largest;
  return {from_float<float16>(scale > most ? most : scale < -most ? -most : scale).bits};
}

}  // namespace detail

// How a block of `T` is written and read:
//   block_size     what it takes, in `T`
//   code_bits      of a number's code, 8 or 4
//   scale          of a block, as a float
//   scale_for the scale of 32 numbers, from their largest magnitude
//   number, code   of a code, before the scale; of a number that has been divided by it
//   element        if a code is a number of a storage type: vectors load it as this type

template <>
struct storage_traits<q8_0> : detail::codes_in<int8> {
  static constexpr const char* name = "q8_0";
  static constexpr bool transforms = true;
  static constexpr index_t block_size = 17;
  ZOOMR_HD static constexpr float scale(q8_0 stored) { return detail::float16_scale(stored); }
  static constexpr q8_0 scale_for(const float*, float largest) {
    return detail::nearest_float16_scale<q8_0>(largest / 127.0f);
  }
};

template <>
struct storage_traits<q4_0> : detail::rows_of_blocks {
  static constexpr const char* name = "q4_0";
  static constexpr bool transforms = true;
  static constexpr index_t block_size = 9, code_bits = 4;
  ZOOMR_HD static constexpr float scale(q4_0 stored) { return detail::float16_scale(stored); }
  static constexpr q4_0 scale_for(const float* numbers, float largest) {
    if (largest == 0.0f) return detail::nearest_float16_scale<q4_0>(-0.0f);
    index_t first = 0;
    while (first + 1 < numbers_in_block && numbers[first] != largest && numbers[first] != -largest) ++first;
    return detail::nearest_float16_scale<q4_0>(numbers[first] / -8.0f);
  }
  ZOOMR_HD static constexpr float number(unsigned code) { return static_cast<float>(static_cast<int>(code) - 8); }
  static constexpr int code(float number) {
    const int n = from_float<int8>(number).bits;
    return 8 + (n > 7 ? 7 : n < -8 ? -8 : n);
  }
};

template <>
struct storage_traits<mxfp8> : detail::codes_in<float8> {
  static constexpr const char* name = "mxfp8";
  static constexpr index_t block_size = 33;
  static constexpr std::uint32_t largest_exponent = 8;  // 448 is 1.75 * 2^8
  ZOOMR_HD static constexpr float scale(mxfp8 stored) {
    const std::uint32_t power = std::uint32_t{stored.bits} << 23;
    return stored.bits == 0 ? 0x1p-127f : stored.bits == 255 ? not_a_number : bits_as<float>(power);
  }
  static constexpr mxfp8 scale_for(const float*, float largest) {
    const std::uint32_t exponent = bits_as<std::uint32_t>(largest) >> 23;  // 255 of an infinity, which saturates too
    const std::uint32_t finite = exponent < 254 ? exponent : 254;
    return {static_cast<std::uint8_t>(finite < largest_exponent ? 0 : finite - largest_exponent)};
  }
};

/// What a block takes, in `T`; 0 where rows are numbers, one after the other.
template <class T>
inline constexpr index_t block_size = storage_traits<T>::block_size;

/// Rows are stored in blocks.
template <class T>
inline constexpr bool in_blocks = block_size<T> > 0;

/// What the first numbers of a row take, in `T`: all of them where they are numbers of this type.
/// @param numbers  of blocks that are begun, nothing counts
template <class T>
ZOOMR_HD constexpr std::int64_t stored_size(std::int64_t numbers) {
  if constexpr (in_blocks<T>) return numbers / numbers_in_block * block_size<T>;
  return numbers;
}

/// Number `d` of a row, exactly; without the scale of keys or values.
template <class T>
ZOOMR_HD inline float number_at(const T* row, index_t d) {
  if constexpr (!in_blocks<T>) {
    return to_float(row[d]);
  } else {
    using codec = storage_traits<T>;
    const T* const block = row + stored_size<T>(d);
    const auto* const codes = reinterpret_cast<const unsigned char*>(block + 1);
    const index_t i = d % numbers_in_block;
    unsigned code = codes[codec::code_bits == 8 ? i : i % 16];
    if (codec::code_bits == 4) code = i < 16 ? code & 15 : code >> 4;
    return codec::number(code) * codec::scale(*block);
  }
}

/// Stores 32 floats, divided by `scale`, as a block: first the block's scale, of its type, one of float16 rounded to
/// the nearest, ties to even, and 65504 at most. Then each number is what is nearest after a division by it, ties to
/// even: -127 to 127, -8 to 7, or -448 to 448. NaN is no largest number; it becomes 0, in mxfp8 it stays.
/// @param from   [numbers_in_block]
/// @param block  [block_size<T>]  out
template <class T>
void store_block(const float* from, float scale, T* block) {
  using codec = storage_traits<T>;
  float numbers[numbers_in_block];
  float largest = 0.0f;
  for (index_t i = 0; i < numbers_in_block; ++i) {
    numbers[i] = from[i] / scale;
    const float size = numbers[i] < 0.0f ? -numbers[i] : numbers[i];
    largest = size > largest ? size : largest;
  }
  *block = codec::scale_for(numbers, largest);
  const float own = codec::scale(*block);
  const float divisor = own == 0.0f ? infinity : own;  // of a scale of 0 all are 0
  auto* const codes = reinterpret_cast<unsigned char*>(block + 1);
  const auto code = [&](index_t i) { return codec::code(numbers[i] / divisor); };
  for (index_t i = 0; i < numbers_in_block * codec::code_bits / 8; ++i) {
    codes[i] = static_cast<unsigned char>(codec::code_bits == 8 ? code(i) : code(i) | code(i + 16) << 4);
  }
}

}  // namespace zoomr::inline v0

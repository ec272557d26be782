// SPDX-License-Identifier: Apache-2.0
// L1. Rows that are stored in blocks of 32 numbers, each with a scale of its own, as ggml stores them:
//
//   type  a block                       bytes  numbers
//   q8_0  float16 scale, int8 n[32]        34  n[i] * scale
//   q4_0  float16 scale, uint8 n[16]       18  i < 16: ((n[i] & 15) - 8) * scale; above: ((n[i - 16] >> 4) - 8) * scale
//
// A stored number becomes a float exactly. A block is aligned to two bytes, and no multiple of anything larger: so the
// types here are two bytes of a row, what pointers and strides count, and stored_size() says how many a row takes.
#pragma once

#include <zoomr/core/storage.hpp>

namespace zoomr {
inline namespace v0 {

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

template <>
constexpr const char* storage_name<q8_0>() {
  return "q8_0";
}
template <>
constexpr const char* storage_name<q4_0>() {
  return "q4_0";
}

inline constexpr index_t numbers_in_block = 32;

/// What a block takes, in `T`; 0 where rows are numbers, one after the other.
template <class T>
inline constexpr index_t block_size = 0;
template <>
inline constexpr index_t block_size<q8_0> = 17;
template <>
inline constexpr index_t block_size<q4_0> = 9;
template <class T>
inline constexpr index_t block_size<const T> = block_size<T>;

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
  return to_float(row[d]);
}
ZOOMR_HD inline float number_at(const q8_0* row, index_t d) {
  const q8_0* const block = row + stored_size<q8_0>(d);
  const auto* const n = reinterpret_cast<const unsigned char*>(block + 1);
  return static_cast<float>(static_cast<std::int8_t>(n[d % numbers_in_block])) * to_float(float16{block->bits});
}
ZOOMR_HD inline float number_at(const q4_0* row, index_t d) {
  const q4_0* const block = row + stored_size<q4_0>(d);
  const int pair = reinterpret_cast<const unsigned char*>(block + 1)[d % 16];
  const int n = d % numbers_in_block < 16 ? pair & 15 : pair >> 4;
  return static_cast<float>(n - 8) * to_float(float16{block->bits});
}

namespace detail {

/// The scale of a block, which is the largest finite one at most.
constexpr float16 scale_stored(float scale) {
  constexpr float most = 65504.0f;
  return from_float<float16>(scale > most ? most : scale < -most ? -most : scale);
}
/// What numbers are divided by: with a scale of 0 they all become 0.
constexpr float block_divisor(float16 scale) {
  const float divisor = to_float(scale);
  return divisor == 0.0f ? infinity : divisor;
}

}  // namespace detail

/// Stores 32 floats, divided by `scale`, as a block: the block's scale is rounded to the nearest float16, ties to even,
/// and 65504 at most; then each number is what is nearest after a division by it, ties to even, -127 to 127 or -8 to 7.
/// NaN becomes 0.
/// @param from   [numbers_in_block]
/// @param block  [block_size<T>]  out
inline void store_block(const float* from, float scale, q8_0* block) {
  float numbers[numbers_in_block];
  float largest = 0.0f;
  for (index_t i = 0; i < numbers_in_block; ++i) {
    numbers[i] = from[i] / scale;
    const float size = numbers[i] < 0.0f ? -numbers[i] : numbers[i];
    largest = size > largest ? size : largest;
  }
  const float16 own = detail::scale_stored(largest / 127.0f);
  const float divisor = detail::block_divisor(own);
  block->bits = own.bits;
  auto* const n = reinterpret_cast<unsigned char*>(block + 1);
  for (index_t i = 0; i < numbers_in_block; ++i) {
    n[i] = static_cast<unsigned char>(from_float<int8>(numbers[i] / divisor).bits);
  }
}
inline void store_block(const float* from, float scale, q4_0* block) {
  float numbers[numbers_in_block];
  float largest = 0.0f, most = 0.0f;
  for (index_t i = 0; i < numbers_in_block; ++i) {
    numbers[i] = from[i] / scale;
    const float size = numbers[i] < 0.0f ? -numbers[i] : numbers[i];
    most = size > largest ? numbers[i] : most;
    largest = size > largest ? size : largest;
  }
  const float16 own = detail::scale_stored(most / -8.0f);
  const float divisor = detail::block_divisor(own);
  block->bits = own.bits;
  const auto code = [&](index_t i) {
    const int n = from_float<int8>(numbers[i] / divisor).bits;
    return 8 + (n > 7 ? 7 : n < -8 ? -8 : n);
  };
  auto* const pairs = reinterpret_cast<unsigned char*>(block + 1);
  for (index_t i = 0; i < 16; ++i) pairs[i] = static_cast<unsigned char>(code(i) | code(i + 16) << 4);
}

}  // namespace v0
}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// L1. The types in which keys and values may be stored. A stored number becomes a float exactly; a float becomes the
// nearest stored number, ties to the even one:
//
//   type      bytes  largest   least step  an infinity  beyond the largest  NaN
//   float         4  3.4e38    2^-149      stays        -                   stays
//   bfloat16      2  3.4e38    2^-133      stays        becomes infinite    stays
//   float16       2  65504     2^-24       stays        becomes infinite    stays
//   float8        1  448       2^-9        becomes 448  becomes 448         stays
//   int8          1  127       1           becomes 127  becomes 127         becomes 0
//   scaled_int8   1  as int8, of numbers that the cache has divided by a scale of each token and KV head
//
// Rows in blocks of 32 numbers are in core/block_rows.hpp.
// Everything is arithmetic of bits, so that host and device agree. The narrow types need a scale: see `config`.
#pragma once

#include <zoomr/core/types.hpp>

#include <limits>  // std::numeric_limits

namespace zoomr::inline v0 {

/// The upper half of a float; NaN stays NaN.
struct bfloat16 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(bfloat16, bfloat16) = default;
};

/// IEEE 754 binary16: sign, 5 bits of exponent, 10 of mantissa.
struct float16 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(float16, float16) = default;
};

/// E4M3 without infinities: sign, 4 bits of exponent, 3 of mantissa; 0x7f and 0xff are NaN, 0x7e is 448.
/// @source  OCP 8-bit floating point specification, E4M3 ("FN" elsewhere); saturates as CUDA's satfinite does
struct float8 {
  std::uint8_t bits = 0;
  friend constexpr bool operator==(float8, float8) = default;
};

/// A whole number from -127 to 127; -128 is never stored. There is no NaN: it becomes 0.
struct int8 {
  std::int8_t bits = 0;
  friend constexpr bool operator==(int8, int8) = default;
};

/// A whole number of a row, of a token's key or value in one KV head, that has a scale of its own: 127 times the scale
/// is the row's largest magnitude. The scales are after the numbers of their page (paging/paged_kv_lane.hpp).
struct scaled_int8 : int8 {};

/// Binary numbers of fewer bits than a float, without their sign: `Mantissa` bits of it, and 2^Least is the smallest
/// number that is not subnormal.
template <int Mantissa, int Least>
struct small_float {
  static constexpr int cut = 23 - Mantissa;                                  // bits that a float has more
  static constexpr std::uint32_t rebias = std::uint32_t{126 + Least} << 23;  // between the two kinds of exponent

  /// The float of these bits. `special` and above, if there is one: infinity and NaN.
  ZOOMR_HD static constexpr float widened(std::uint32_t bits, std::uint32_t special = ~0u) {
    constexpr auto grid = std::uint32_t{127 + Least + cut} << 23;  // a float whose last bit is worth a subnormal's
    if (bits < (1u << Mantissa)) return bits_as<float>(grid + bits) - bits_as<float>(grid);
    return bits_as<float>((bits << cut) + (bits >= special ? 2 * rebias : rebias));
  }

  /// The bits nearest to the float that has these (no sign, no NaN), as if there were exponents without end.
  ZOOMR_HD static constexpr std::uint32_t nearest(std::uint32_t bits) {
    const auto exponent = static_cast<int>(bits >> 23);
    if (exponent >= 127 + Least) return shifted(bits - rebias, cut);
    const int below = 127 + Least - exponent;  // a subnormal loses a bit for each power of two
    return below > Mantissa + 1 ? 0 : shifted((bits & 0x7fffffu) | 0x800000u, cut + below);
  }

 private:
  // x / 2^places, to the nearest integer, ties to even. A carry into the exponent is right: the next number has it.
  ZOOMR_HD static constexpr std::uint32_t shifted(std::uint32_t x, int places) {
    return (x + (1u << (places - 1)) - 1 + ((x >> places) & 1u)) >> places;
  }
};

using small_float16 = small_float<10, -14>;
using small_float8 = small_float<3, -6>;

/// What the library has for a storage type; core/storage_types.hpp lists those that have it. Of each:
///
///   name         which a saved sequence has
///   scales_rows  rows have scales of their own
///   transforms   a cache in memory of its own stores rows transformed, unless its config says otherwise
///   block_size   what a block of numbers takes, in `T`; 0 where rows are numbers, one after the other
///
/// Of rows of numbers:
///
///   largest                         finite number
///   to_float, from_float            exactly; to the nearest, ties to even
///   from_float_down, from_float_up  to the nearest that is not above, or not below: of types that an index may keep
///
/// Of rows of blocks: see core/block_rows.hpp.
template <class T>
struct storage_traits;
template <class T>
struct storage_traits<const T> : storage_traits<T> {};

/// The name of a storage type, which a saved sequence bears.
template <class T>
constexpr const char* storage_name() {
  return storage_traits<T>::name;
}

/// Rows have scales of their own.
template <class T>
inline constexpr bool scales_rows = storage_traits<T>::scales_rows;

/// The float that is stored, exactly; without the scale of keys or values, which is its reader's to apply.
template <class T>
ZOOMR_HD constexpr float to_float(T value) {
  return storage_traits<T>::to_float(value);
}

/// A float in the storage type `T`. Every NaN becomes the one that CUDA's conversions make: 0x7fff in a float16, 0x7f
/// in a float8; a bfloat16 keeps what it can.
template <class T>
ZOOMR_HD constexpr T from_float(float value) {
  return storage_traits<T>::from_float(value);
}

/// The largest number of `T` that is not above `value`; NaN stays NaN, and of float8 there is none below -448: NaN. For
/// the lower side of a box, which must hold its keys in fewer bits too (policy/summary.hpp).
/// @pre  of int8: -127 <= value <= 127
template <class T>
ZOOMR_HD constexpr T from_float_down(float value) {
  return storage_traits<T>::from_float_down(value);
}

/// The smallest number of `T` that is not below `value`; NaN stays NaN, and of float8 there is none above 448: NaN.
/// @pre  of int8: -127 <= value <= 127
template <class T>
ZOOMR_HD constexpr T from_float_up(float value) {
  return storage_traits<T>::from_float_up(value);
}

namespace detail {

struct rows_of_numbers {
  static constexpr bool scales_rows = false, transforms = false;
  static constexpr index_t block_size = 0;
};

/// Of a type whose bits are a sign and a size: numbers of one sign are ordered as their bits.
template <class T>
struct sign_and_size : rows_of_numbers {
  using bits_type = decltype(T::bits);
  static_assert(static_cast<bits_type>(-1) > 0);
  static constexpr auto sign = static_cast<bits_type>(1u << (8 * sizeof(bits_type) - 1));

  ZOOMR_HD static constexpr T from_float_down(float value) {
    const T nearest = storage_traits<T>::from_float(value);
    if (!(storage_traits<T>::to_float(nearest) > value)) return nearest;
    const bool negative = (nearest.bits & sign) != 0;  // towards minus infinity
    return {static_cast<bits_type>(negative ? nearest.bits + 1 : nearest.bits == 0 ? sign + 1 : nearest.bits - 1)};
  }
  ZOOMR_HD static constexpr T from_float_up(float value) {
    return {static_cast<bits_type>(from_float_down(-value).bits ^ sign)};
  }
};

}  // namespace detail

template <>
struct storage_traits<float> : detail::rows_of_numbers {
  static constexpr const char* name = "float";
  static constexpr float largest = (std::numeric_limits<float>::max)();

  ZOOMR_HD static constexpr float to_float(float value) { return value; }
  ZOOMR_HD static constexpr float from_float(float value) { return value; }
};

template <>
struct storage_traits<bfloat16> : detail::sign_and_size<bfloat16> {
  static constexpr const char* name = "bfloat16";
  static constexpr float largest = 0x1.fep127f;

  ZOOMR_HD static constexpr float to_float(bfloat16 value) {
    return bits_as<float>(static_cast<std::uint32_t>(value.bits) << 16);
  }
  ZOOMR_HD static constexpr bfloat16 from_float(float value) {
    const auto bits = bits_as<std::uint32_t>(value);
    if (value != value) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
    return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
  }
};

template <>
struct storage_traits<float16> : detail::sign_and_size<float16> {
  static constexpr const char* name = "float16";
  static constexpr float largest = 65504.0f;

  ZOOMR_HD static constexpr float to_float(float16 value) {
    const float size = small_float16::widened(value.bits & 0x7fffu, 0x7c00u);
    return (value.bits & 0x8000u) != 0 ? -size : size;
  }
  ZOOMR_HD static constexpr float16 from_float(float value) {
    const auto bits = bits_as<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    if (value != value) return {0x7fff};
    const std::uint32_t size = small_float16::nearest(bits & 0x7fffffffu);
    return {static_cast<std::uint16_t>(sign | (size < 0x7c00u ? size : 0x7c00u))};
  }
};

template <>
struct storage_traits<float8> : detail::sign_and_size<float8> {
  static constexpr const char* name = "float8";
  static constexpr float largest = 448.0f;

  ZOOMR_HD static constexpr float to_float(float8 value) {
    const float size = (value.bits & 0x7fu) == 0x7fu ? not_a_number : small_float8::widened(value.bits & 0x7fu);
    return (value.bits & 0x80u) != 0 ? -size : size;
  }
  ZOOMR_HD static constexpr float8 from_float(float value) {
    const auto bits = bits_as<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 24) & 0x80u;
    if (value != value) return {0x7f};
    const std::uint32_t size = small_float8::nearest(bits & 0x7fffffffu);
    return {static_cast<std::uint8_t>(sign | (size < 0x7eu ? size : 0x7eu))};
  }
};

template <>
struct storage_traits<int8> : detail::rows_of_numbers {
  static constexpr const char* name = "int8";
  static constexpr float largest = 127.0f;

  ZOOMR_HD static constexpr float to_float(int8 value) { return static_cast<float>(value.bits); }
  ZOOMR_HD static constexpr int8 from_float(float value) {
    if (value != value) return {};
    const float bounded = value > 127.0f ? 127.0f : value < -127.0f ? -127.0f : value;
    // adding 1.5 * 2^23 leaves no bits for a fraction
    const auto bits = bits_as<std::int32_t>(bounded + 12582912.0f);
    return {static_cast<std::int8_t>(bits - bits_as<std::int32_t>(12582912.0f))};
  }
  ZOOMR_HD static constexpr int8 from_float_down(float value) {
    const int8 nearest = from_float(value);
    return {static_cast<std::int8_t>(to_float(nearest) > value ? nearest.bits - 1 : nearest.bits)};
  }
  ZOOMR_HD static constexpr int8 from_float_up(float value) {
    return {static_cast<std::int8_t>(-from_float_down(-value).bits)};
  }
};

template <>
struct storage_traits<scaled_int8> : detail::rows_of_numbers {
  static constexpr const char* name = "scaled_int8";
  static constexpr bool scales_rows = true;
  static constexpr float largest = storage_traits<int8>::largest;

  ZOOMR_HD static constexpr float to_float(scaled_int8 value) { return storage_traits<int8>::to_float(value); }
  ZOOMR_HD static constexpr scaled_int8 from_float(float value) { return {storage_traits<int8>::from_float(value)}; }
};

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L3. What may stand for a segment, as tags: a scorer reads exactly the summaries that a summarizer makes.
// For each KV lane they are stored as [segment][dim][rows], contiguous and append-only.
//
// A summary whose numbers have 8 bits has a scale of its own, a power of two: a number is what is kept times the scale.
// So all of these bits are used whatever the keys are, and a product with a scale is exact, unless it overflows or is
// subnormal.
#pragma once

#include <zoomr/core/storage.hpp>
#include <zoomr/math/functions.hpp>

#include <cstddef>      // std::size_t
#include <type_traits>  // std::is_same_v

namespace zoomr::inline v0 {

/// The numbers that stand for one dimension of one segment, in float, whatever the index keeps.
template <index_t Rows>
struct cells {
  float row[std::size_t{Rows > 0 ? Rows : 1}] = {};
};

namespace summary {
struct none {  ///< nothing: segments cannot be scored
  static constexpr index_t rows = 0;
};
struct mean {  ///< row[0] = mean of the cue's keys
  static constexpr index_t rows = 1;
};
struct box {  ///< row[0] = lower, row[1] = upper side of a box around the cue's keys
  static constexpr index_t rows = 2;

  /// In fewer bits it must still hold all keys that it holds.
  template <class Number>
  ZOOMR_HD static constexpr Number stored(index_t row, float side) {
    return row == 0 ? from_float_down<Number>(side) : from_float_up<Number>(side);
  }
};
}  // namespace summary

/// What an index may keep in place of floats: boxes are rounded outwards to it.
template <class T>
concept index_storage = requires(float x) {
  storage_traits<T>::from_float_down(x);
};

/// Each summary has a scale: its numbers have 8 bits.
template <class Number>
inline constexpr bool scales_summaries = index_storage<Number> && sizeof(Number) == 1;

/// What the largest of summary_magnitude is found by: it orders as the sizes of numbers do, infinity and NaN last.
ZOOMR_HD constexpr std::uint32_t summary_magnitude(float value) { return bits_as<std::uint32_t>(value) & 0x7fffffffu; }

/// The scale of a summary: the power of two that takes its largest number to the upper half of what `Number` can hold,
/// above half of its largest and to that at most, so that nothing is beyond; but never below 2^-126. A summary with an
/// infinity or NaN has the scale NaN: so have all its scores, and it ranks last.
/// @param largest  the largest summary_magnitude of its numbers
template <class Number>
ZOOMR_HD constexpr float summary_scale(std::uint32_t largest) {
  constexpr auto top = bits_as<std::uint32_t>(storage_traits<Number>::largest);
  constexpr std::uint32_t powers = (top >> 23) - 127;
  if (largest >= 0x7f800000u) return not_a_number;
  const std::uint32_t exponent = (largest + 0x7fffffu - (top & 0x7fffffu)) >> 23;  // one more beyond top's mantissa
  return bits_as<float>((exponent > powers ? exponent - powers : 1u) << 23);
}

/// One number of a summary as the index keeps it: rounded as its tag requires, or else to the nearest. Host and device
/// write the index through this alone, so that its bits are the same.
/// @param scale  of the summary, if it has one
template <class Summary, class Number>
ZOOMR_HD constexpr Number stored_number(index_t row, float value, [[maybe_unused]] float scale = 1.0f) {
  if constexpr (scales_summaries<Number>) {
    // A quotient that vanishes leaves its number, which is then far below the least that is kept, on its side of zero.
    const float scaled = quotient(value, scale);
    if (scaled != 0.0f) value = scaled;
  }
  if constexpr (std::is_same_v<Number, float>) {
    return value;
  } else if constexpr (requires { Summary::template stored<Number>(row, value); }) {
    return Summary::template stored<Number>(row, value);
  } else {
    return from_float<Number>(value);
  }
}

}  // namespace zoomr::inline v0

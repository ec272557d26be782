// SPDX-License-Identifier: Apache-2.0
#include "finite.hpp"

#include <algorithm>  // std::min

namespace decode {
namespace {

// What is not finite has all bits of its exponent.
std::uint32_t bits_of(float number) { return zoomr::bits_as<std::uint32_t>(number); }
std::uint16_t bits_of(zoomr::bfloat16 number) { return number.bits; }
std::uint16_t bits_of(zoomr::float16 number) { return number.bits; }

template <class Bits, class T>
std::int64_t first_with(Bits exponent, const T* numbers, std::int64_t count) {
  constexpr std::int64_t piece = 4096;
  for (std::int64_t first = 0; first < count; first += piece) {
    const std::int64_t last = std::min(first + piece, count);
    Bits any = 0;  // as wide as a number, so that a vector has as many of them
    for (std::int64_t i = first; i < last; ++i)
      any = static_cast<Bits>(any | ((bits_of(numbers[i]) & exponent) == exponent ? 1 : 0));
    for (std::int64_t i = first; any != 0; ++i)
      if ((bits_of(numbers[i]) & exponent) == exponent) return i;
  }
  return count;
}

}  // namespace

std::int64_t first_not_finite(const float* numbers, std::int64_t count) {
  return first_with<std::uint32_t>(0x7f800000u, numbers, count);
}
std::int64_t first_not_finite(const zoomr::bfloat16* numbers, std::int64_t count) {
  return first_with<std::uint16_t>(0x7f80u, numbers, count);
}
std::int64_t first_not_finite(const zoomr::float16* numbers, std::int64_t count) {
  return first_with<std::uint16_t>(0x7c00u, numbers, count);
}

}  // namespace decode

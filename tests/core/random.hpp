// SPDX-License-Identifier: Apache-2.0
// Numbers for tests: the same on every machine for the same seed.
#pragma once

#include <zoomr/core/types.hpp>

#include <bit>      // std::bit_cast
#include <cstddef>  // std::size_t
#include <vector>   // std::vector

namespace unit {

/// splitmix64.
class random {
 public:
  explicit random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, n).
  zoomr::index_t below(zoomr::index_t n) { return static_cast<zoomr::index_t>(bits() % static_cast<std::uint64_t>(n)); }
  /// Uniform in [first, last], both inclusive.
  zoomr::index_t between(zoomr::index_t first, zoomr::index_t last) { return first + below(last - first + 1); }
  bool chance(double p) { return static_cast<double>(bits() >> 11) * 0x1p-53 < p; }
  /// Uniform in [low, high).
  float uniform(float low, float high) {
    return static_cast<float>(low + (high - low) * (static_cast<double>(bits() >> 11) * 0x1p-53));
  }
  /// Any float at all: NaN, infinities and subnormals included.
  float any_float() { return std::bit_cast<float>(static_cast<std::uint32_t>(bits())); }

  std::vector<float> floats(std::size_t n, float low = -1.0f, float high = 1.0f) {
    std::vector<float> made(n);
    for (float& value : made) value = uniform(low, high);
    return made;
  }

 private:
  std::uint64_t state_;
};

/// A count as the size of a vector.
constexpr std::size_t size(zoomr::index_t n) { return static_cast<std::size_t>(n); }

/// True if both are the same bits, or both NaN.
inline bool same_bits(float a, float b) {
  return (a != a && b != b) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

}  // namespace unit

// SPDX-License-Identifier: Apache-2.0
// L1. Bytes that leave the memory: their order in a file, and a checksum of them. It finds what disks and memory do to
// bytes, not what people do.
#pragma once

#include <zoomr/core/types.hpp>

#include <algorithm>  // std::reverse_copy
#include <bit>        // std::endian
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint64_t
#include <cstring>    // std::memcpy

namespace zoomr::inline v0 {
namespace detail {

/// Numbers of a machine as a file has them, little-endian, or the other way round.
/// @param from, to  `count` numbers of `size` bytes each; they do not overlap
template <std::endian Machine = std::endian::native>
void little_endian(const void* from, void* to, std::size_t size, std::int64_t count) {
  if (Machine == std::endian::little || size == 1) {
    std::memcpy(to, from, size * static_cast<std::size_t>(count));
    return;
  }
  const auto* in = static_cast<const unsigned char*>(from);
  auto* out = static_cast<unsigned char*>(to);
  for (; count > 0; --count, in += size, out += size) std::reverse_copy(in, in + size, out);
}

/// A checksum, which bytes are added to as they come.
/// @cost  a multiplication for each 8 bytes
class running_sum {
 public:
  running_sum() = default;
  /// Begins with a number.
  explicit running_sum(std::uint64_t seed) : sum_(odd ^ seed) {}
  void add(const void* data, byte_count bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (; bytes > 0 && filled_ > 0; --bytes) next(*at++);
    for (; bytes >= 8; bytes -= 8, at += 8) {
      std::uint64_t word = 0;
      little_endian(at, &word, sizeof word, 1);
      take(word);
    }
    for (; bytes > 0; --bytes) next(*at++);
  }
  std::uint64_t value() const {
    running_sum whole = *this;
    if (filled_ > 0) whole.take(word_);
    return whole.sum_;
  }

 private:
  static constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;

  void take(std::uint64_t word) {
    sum_ = (sum_ ^ word) * odd;
    sum_ ^= sum_ >> 29;
  }
  void next(unsigned char byte) {
    word_ |= std::uint64_t{byte} << 8 * filled_;
    if (++filled_ < 8) return;
    take(word_);
    word_ = 0;
    filled_ = 0;
  }

  std::uint64_t sum_ = odd;
  std::uint64_t word_ = 0;  // bytes that are no whole word yet
  int filled_ = 0;
};

}  // namespace detail

/// A number that another content hardly has.
/// @cost  a multiplication for each 8 bytes
inline std::uint64_t checksum(const void* data, byte_count bytes) {
  detail::running_sum sum(static_cast<std::uint64_t>(bytes));
  sum.add(data, bytes);
  return sum.value();
}

}  // namespace zoomr::inline v0

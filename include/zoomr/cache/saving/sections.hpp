// SPDX-License-Identifier: Apache-2.0
// L6. What a saved sequence is made of: sections, each with its kind, its length and a checksum. Numbers are
// little-endian on any machine. docs/sequence_format.md describes every byte.
//
// A checksum finds what disks do to bytes, not what people do: whoever reads a number checks it before it is used.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/types.hpp>

#include <algorithm>  // std::reverse_copy
#include <bit>        // std::endian
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint32_t, std::uint64_t
#include <cstring>    // std::memcpy
#include <string>     // std::string

namespace zoomr {
inline namespace v0 {
namespace detail {

/// Says that a file cannot be loaded, and why.
[[noreturn]] inline void refuse_file(const std::string& why) { raise(errc::format, "load: " + why); }

/// A kind of section: four characters.
struct section_kind {
  std::uint32_t code;

  constexpr section_kind(const char (&text)[5]) : code(0) {  // NOLINT: implicit, as a text is a kind
    for (int i = 3; i >= 0; --i) code = code << 8 | static_cast<unsigned char>(text[i]);
  }
  std::string name() const {
    std::string text;
    for (int i = 0; i < 4; ++i) text += static_cast<char>(code >> 8 * i & 0xffu);
    return text;
  }
};

inline constexpr char sequence_magic[] = {'z', 'o', 'o', 'm', 'r', 's', 'e', 'q'};
inline constexpr char groups_magic[] = {'z', 'o', 'o', 'm',
                                        'r', 'g', 'r', 'p'};  // one for each group of layers follows
inline constexpr std::uint64_t sequence_version = 6;

/// Numbers of a machine as the file has them, or the other way round.
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

/// The checksum of a section, which bytes are added to as they come: `checksum` of paging/block_file.hpp over the
/// section's kind and number and its bytes.
class section_sum {
 public:
  section_sum() = default;
  section_sum(std::uint32_t kind, std::uint32_t number, byte_count length)
      : sum_(odd ^ static_cast<std::uint64_t>(length)) {
    take(kind | std::uint64_t{number} << 32);
  }
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
    section_sum whole = *this;
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
    word_ = 0, filled_ = 0;
  }

  std::uint64_t sum_ = 0;
  std::uint64_t word_ = 0;  // bytes that are no whole word yet
  int filled_ = 0;
};

/// Working memory of a writer or reader.
struct section_memory {
  static constexpr byte_count size = 4096;
  unsigned char at[size];
};

}  // namespace detail
}  // namespace v0
}  // namespace zoomr

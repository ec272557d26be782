// SPDX-License-Identifier: Apache-2.0
// L6. Reads the sections of a saved sequence, in their order. It has 4 KiB of working memory in itself, allocates
// nothing, and never reads past the last section.
#pragma once

#include <zoomr/cache/byte_stream.hpp>
#include <zoomr/cache/saving/sections.hpp>

#include <algorithm>    // std::min
#include <bit>          // std::endian
#include <cstring>      // std::memcpy, std::memcmp
#include <string>       // std::string, std::to_string
#include <type_traits>  // std::is_trivially_copyable_v

namespace zoomr::inline v0::detail {

/// Reads sections, in the order in which they were written, by the same calls.
/// @throws error(format) from all functions, if something else comes; whatever the source throws
class section_reader {
 public:
  static constexpr bool reads = true;

  /// Begins with what every file begins with.
  /// @param magic  the kind of file
  /// @param what   that kind in words, for the error if the file is of another one
  explicit section_reader(byte_source& source, const char (&magic)[8] = sequence_magic,
                          const char* what = "saved sequence of zoomr")
      : source_(source) {
    char found[sizeof magic];
    fetch(found, sizeof found);
    if (std::memcmp(found, magic, sizeof found) != 0) refuse_file(std::string("this is no ") + what);
    const auto version = fetch_number<std::uint64_t>();
    if (version == sequence_version) return;
    refuse_file("the file's format has version " + std::to_string(version) + ", this library reads version " +
                std::to_string(sequence_version));
  }
  /// The next section, all of which `contents()` reads. Its bytes, and all before them, are those that were written.
  /// @param name  for error messages
  template <class Contents>
  void section(const char* name, Contents contents) {
    name_ = name;
    const auto length = fetch_number<std::uint64_t>();
    if (length >= static_cast<std::uint64_t>(too_many_bytes)) damaged("its length cannot be");
    left_ = static_cast<byte_count>(length);
    contents();
    if (left_ != 0) damaged("it has more bytes than its contents");
    const std::uint64_t sum = sum_.value();
    if (fetch_number<std::uint64_t>() != sum) damaged("its checksum differs");
  }
  static constexpr bool counting() { return false; }
  template <class Number>
  void number(Number& number) {
    numbers(&number, 1);
  }
  template <class Number>
  void numbers(Number* to, std::int64_t count) {
    static_assert(std::is_trivially_copyable_v<Number>);
    constexpr auto size = static_cast<byte_count>(sizeof(Number));
    if constexpr (std::endian::native == std::endian::little || size == 1) {
      bytes(to, count * size);
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        unsigned char bytes_of_number[sizeof(Number)];
        bytes(bytes_of_number, size);
        little_endian(bytes_of_number, to + i, sizeof(Number), 1);
      }
    }
  }
  /// Reads past some bytes of the section.
  void skip(byte_count count) {
    unsigned char skipped[256];
    for (; count > 0; count -= static_cast<byte_count>(sizeof skipped)) {
      bytes(skipped, (std::min)(count, static_cast<byte_count>(sizeof skipped)));
    }
  }
  /// Bytes of the section that have not been read. Nothing has been compared with its length.
  byte_count left() const { return left_; }
  /// Refuses the file unless it is right.
  /// @param how  what is wrong with the section, in words
  void expect(bool right, const char* how) const {
    if (!right) damaged(how);
  }

 private:
  [[noreturn]] void damaged(const char* how) const {
    refuse_file(std::string("the file is damaged: section ") + name_ + ": " + how);
  }
  // Of the section: never reads past it.
  void bytes(void* to, byte_count count) {
    if (count > left_) damaged("it ends too early");
    if (count == 0) return;  // there may be no memory
    auto* out = static_cast<unsigned char*>(to);
    for (byte_count left_over = count; left_over > 0;) {
      if (first_ == last_ && left_over >= section_memory::size) {
        fetch(out, left_over);
        break;
      }
      if (first_ == last_) {
        first_ = 0;
        last_ = (std::min)(section_memory::size, left_ - (count - left_over));
        fetch(memory_.at, last_);
      }
      const byte_count part = (std::min)(left_over, last_ - first_);
      std::memcpy(out, memory_.at + first_, static_cast<std::size_t>(part));
      out += part;
      first_ += part;
      left_over -= part;
    }
    left_ -= count;
  }
  void fetch(void* to, byte_count count) {
    if (source_.read(to, count) != count) refuse_file("the file is damaged: it ends too early");
    sum_.add(to, count);
  }
  template <class Number>
  Number fetch_number() {
    unsigned char bytes_of_number[sizeof(Number)];
    fetch(bytes_of_number, static_cast<byte_count>(sizeof(Number)));
    Number number;
    little_endian(bytes_of_number, &number, sizeof number, 1);
    return number;
  }

  byte_source& source_;
  const char* name_ = "";
  running_sum sum_;       // of all that was fetched
  byte_count left_ = 0;   // of the section
  byte_count first_ = 0;  // of the bytes in memory
  byte_count last_ = 0;   // exclusive
  section_memory memory_;
};

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L6. Writes the sections of a saved sequence. It has 4 KiB of working memory in itself, and allocates nothing.
#pragma once

#include <zoomr/cache/byte_stream.hpp>
#include <zoomr/cache/saving/sections.hpp>

#include <bit>          // std::endian
#include <cstring>      // std::memcpy
#include <type_traits>  // std::is_trivially_copyable_v

namespace zoomr {
inline namespace v0 {
namespace detail {

/// Passes bytes on. Others follow, so that it does not say that these were the last.
class sink_of_part final : public byte_sink {
 public:
  explicit sink_of_part(byte_sink& to) : to_(to) {}
  void write(const void* from, byte_count bytes) override { to_.write(from, bytes); }

 private:
  byte_sink& to_;
};

/// Writes sections.
/// @throws whatever the sink throws
class section_writer {
 public:
  /// Begins with what every file begins with.
  /// @param magic  the kind of file
  explicit section_writer(byte_sink& sink, const char (&magic)[8] = sequence_magic) : sink_(sink) {
    keep(magic, sizeof magic);
    put_apart(sequence_version);
  }

  /// @param number  tells apart sections of one kind
  /// @param bytes   that will follow before `end`
  void begin(section_kind kind, index_t number, byte_count bytes) {
    put_apart(kind.code), put_apart(static_cast<std::uint32_t>(number)), put_apart(static_cast<std::uint64_t>(bytes));
    sum_ = section_sum(kind.code, static_cast<std::uint32_t>(number), bytes);
    left_ = bytes;
  }
  template <class Number>
  void put(const Number& number) {
    put(&number, 1);
  }
  template <class Number>
  void put(const Number* numbers, std::int64_t count) {
    static_assert(std::is_trivially_copyable_v<Number>);
    if constexpr (std::endian::native == std::endian::little || sizeof(Number) == 1) {
      bytes(numbers, count * size<Number>);
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        unsigned char one[sizeof(Number)];
        little_endian(numbers + i, one, sizeof(Number), 1);
        bytes(one, size<Number>);
      }
    }
  }
  void end() {
    ZOOMR_ASSERT(left_ == 0, "a section has the bytes that it was said to have");
    put_apart(sum_.value());
  }
  /// Behind the last section.
  void finish() {
    flush();
    sink_.finish();
  }

 private:
  template <class Number>
  static constexpr byte_count size = static_cast<byte_count>(sizeof(Number));

  void bytes(const void* from, byte_count count) {
    if (count == 0) return;  // there may be no memory
    left_ -= count;
    sum_.add(from, count);
    keep(from, count);
  }
  template <class Number>
  void put_apart(Number number) {  // from checksum and length
    unsigned char one[sizeof number];
    little_endian(&number, one, sizeof number, 1);
    keep(one, size<Number>);
  }
  void keep(const void* from, byte_count count) {
    if (used_ + count > section_memory::size) flush();
    if (count >= section_memory::size) return sink_.write(from, count);
    std::memcpy(memory_.at + used_, from, static_cast<std::size_t>(count));
    used_ += count;
  }
  void flush() {
    if (used_ > 0) sink_.write(memory_.at, used_);
    used_ = 0;
  }

  byte_sink& sink_;
  section_sum sum_;
  byte_count left_ = 0;
  byte_count used_ = 0;
  section_memory memory_;
};

}  // namespace detail
}  // namespace v0
}  // namespace zoomr

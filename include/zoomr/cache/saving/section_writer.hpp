// SPDX-License-Identifier: Apache-2.0
// L6. Writes the sections of a saved sequence. It has 4 KiB of working memory in itself, and allocates nothing.
#pragma once

#include <zoomr/cache/byte_stream.hpp>
#include <zoomr/cache/saving/sections.hpp>

#include <bit>          // std::endian
#include <cstring>      // std::memcpy
#include <type_traits>  // std::is_trivially_copyable_v

namespace zoomr::inline v0::detail {

/// Passes bytes on. Others follow, so that it does not call `finish`.
class sink_of_part final : public byte_sink {
 public:
  explicit sink_of_part(byte_sink& to) : to_(to) {}
  void write(const void* from, byte_count bytes) override { to_.write(from, bytes); }

 private:
  byte_sink& to_;
};

/// Writes sections. What is saved is described once, for this and for `section_reader`: of the same functions those
/// that check do nothing here.
/// @throws whatever the sink throws
class section_writer {
 public:
  static constexpr bool reads = false;

  /// Begins with what every file begins with.
  /// @param sink   nullptr: bytes are only counted
  /// @param magic  the kind of file
  explicit section_writer(byte_sink* sink, const char (&magic)[8] = sequence_magic) : sink_(sink) {
    keep(magic, sizeof magic);
    keep_number(sequence_version);
  }

  /// A section. Its length comes before it, so that `contents()` is called twice: the first time to count its bytes.
  template <class Contents>
  void section(const char*, Contents contents) {
    left_ = 0;
    counting_ = true;
    contents();
    counting_ = false;
    keep_number(static_cast<std::uint64_t>(-left_));
    left_ = -left_;
    if (sink_ == nullptr) {
      bytes_ += left_;
    } else {
      contents();
      ZOOMR_ASSERT(left_ == 0, "a section has the bytes that were counted");
    }
    keep_number(sum_.value());
  }
  /// All that was written, or was counted.
  byte_count bytes() const { return bytes_; }
  /// Bytes are only counted: where numbers are does not matter yet, so that no page need come for it.
  bool counting() const { return counting_; }
  template <class Number>
  void number(const Number& number) {
    numbers(&number, 1);
  }
  template <class Number>
  void numbers(const Number* from, std::int64_t count) {
    static_assert(std::is_trivially_copyable_v<Number>);
    left_ -= count * size<Number>;
    if (counting_ || count == 0) return;  // there may be no memory
    if constexpr (std::endian::native == std::endian::little || sizeof(Number) == 1) {
      keep(from, count * size<Number>);
    } else {
      for (std::int64_t i = 0; i < count; ++i) keep_number(from[i]);
    }
  }
  static void skip([[maybe_unused]] byte_count count) { ZOOMR_ASSERT(count == 0, "all that is saved is written"); }
  static constexpr byte_count left() { return too_many_bytes; }
  static void expect(bool, const char*) {}

  /// Behind the last section.
  void finish() {
    if (sink_ == nullptr) return;
    flush();
    sink_->finish();
  }

 private:
  template <class Number>
  static constexpr byte_count size = static_cast<byte_count>(sizeof(Number));

  template <class Number>
  void keep_number(const Number& number) {
    unsigned char bytes_of_number[sizeof number];
    little_endian(&number, bytes_of_number, sizeof number, 1);
    keep(bytes_of_number, size<Number>);
  }
  void keep(const void* from, byte_count count) {
    bytes_ += count;
    if (sink_ == nullptr) return;
    sum_.add(from, count);
    if (used_ + count > section_memory::size) flush();
    if (count >= section_memory::size) return sink_->write(from, count);
    std::memcpy(memory_.at + used_, from, static_cast<std::size_t>(count));
    used_ += count;
  }
  void flush() {
    if (used_ > 0) sink_->write(memory_.at, used_);
    used_ = 0;
  }

  byte_sink* sink_;
  running_sum sum_;  // of all that was written
  byte_count bytes_ = 0;
  byte_count left_ = 0;  // of the section
  bool counting_ = false;
  byte_count used_ = 0;
  section_memory memory_;
};

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// UTF-8: how long a character is, whether it is one, and text that arrives in pieces of tokens.
#pragma once

#include <cstddef>      // std::size_t
#include <string>       // std::string
#include <string_view>  // std::string_view

namespace decode {

/// What begins at `text[at]`: a character of n bytes (n > 0), one that the end of the text cuts
/// short (0), or |n| bytes that are no character and stand for one U+FFFD (n < 0).
inline int utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(at);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return -1;
  const int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;   // no overlong forms
  unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;  // no surrogates, <= U+10FFFF
  for (int i = 1; i < length; ++i, low = 0x80, high = 0xbf) {
    const std::size_t next = at + static_cast<std::size_t>(i);
    if (next == text.size()) return 0;
    if (byte(next) < low || byte(next) > high) return -i;
  }
  return length;
}

/// The byte at which text stops being UTF-8; text.size() if it is all well.
inline std::size_t first_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const int length = utf8_length(text, at);
    if (length <= 0) break;
    at += static_cast<std::size_t>(length);
  }
  return at;
}

/// Takes the byte order mark from the beginning of a text.
/// @return  whether there was one
inline bool drop_byte_order_mark(std::string& text) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  if (!text.starts_with(mark)) return false;
  text.erase(0, mark.size());
  return true;
}

/// Bytes in pieces, characters out: a token may end inside a character, which is held back until
/// the next tokens complete it. Bytes that cannot become one are written as U+FFFD.
class utf8_stream {
 public:
  /// The characters that these bytes complete.
  std::string push(std::string_view bytes) {
    held_ += bytes;
    std::string out;
    std::size_t at = 0;
    while (at < held_.size()) {
      const int length = utf8_length(held_, at);
      if (length == 0) break;
      const auto size = static_cast<std::size_t>(length > 0 ? length : -length);
      out += length > 0 ? std::string_view(held_).substr(at, size) : replacement;
      at += size;
    }
    held_.erase(0, at);
    return out;
  }

  /// What is left at the end: nothing, or one U+FFFD for a character that was never completed.
  std::string finish() {
    const bool cut = !held_.empty();
    held_.clear();
    return std::string(cut ? replacement : "");
  }

 private:
  static constexpr std::string_view replacement = "\xef\xbf\xbd";
  std::string held_;  // at most 3 bytes between calls
};

}  // namespace decode

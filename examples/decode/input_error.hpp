// SPDX-License-Identifier: Apache-2.0
// The one kind of complaint about what a user gave: a file or a text that cannot be used.
#pragma once

#include <filesystem>   // std::filesystem::path
#include <sstream>      // std::ostringstream
#include <stdexcept>    // std::runtime_error
#include <string>       // std::string
#include <string_view>  // std::string_view

namespace decode {

/// A file or a text that cannot be used: one sentence that says what is wrong, and where.
class input_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws an input_error whose sentence is the parts, printed one after the other.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream sentence;
  (sentence << ... << parts);
  throw input_error(sentence.str());
}

/// On one line: control bytes become \xNN.
inline std::string on_one_line(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      (out += "\\x") += digits[byte >> 4];
      out += digits[byte & 15];
    }
  }
  return out;
}

/// Text from outside made fit for a message: in quotes, control bytes as \xNN, cut to 60 bytes.
inline std::string shown(std::string_view text) {
  constexpr std::size_t longest = 60;
  return '"' + on_one_line(text.substr(0, longest)) + (text.size() > longest ? "…\"" : "\"");
}

/// On one line of `longest` bytes or little more: of a longer text the middle is left out, between characters.
inline std::string shortened(std::string_view text, std::size_t longest) {
  if (text.size() <= longest) return on_one_line(text);
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; };
  std::size_t first = longest / 2, last = text.size() - longest / 2;
  while (first > 0 && continues(first)) --first;
  while (last < text.size() && continues(last)) ++last;
  return on_one_line(text.substr(0, first)) + "…" + on_one_line(text.substr(last));
}

/// The name of a file for a message: as it is, unless it has more than one line or 240 bytes.
inline std::string named(const std::filesystem::path& file) { return shortened(file.native(), 240); }

}  // namespace decode

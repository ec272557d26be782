// SPDX-License-Identifier: Apache-2.0
// The one kind of complaint about what a user gave: a file or a text that cannot be used.
#pragma once

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

/// Text from outside made fit for a message: in quotes, control bytes as \xNN, cut to 60 bytes.
inline std::string shown(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  constexpr std::size_t longest = 60;
  std::string out = "\"";
  for (const char c : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      (out += "\\x") += digits[byte >> 4];
      out += digits[byte & 15];
    }
  }
  return out += text.size() > longest ? "…\"" : "\"";
}

}  // namespace decode

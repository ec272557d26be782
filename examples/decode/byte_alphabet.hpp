// SPDX-License-Identifier: Apache-2.0
// The alphabet of byte-level tokenizers: each byte is one visible character, so that a vocabulary
// of strings can hold any bytes. Bytes that Latin-1 shows stand for themselves, the other 68 become
// U+0100, U+0101, … in their order: a space is U+0120 "Ġ", a line feed U+010A "Ċ".
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <optional>     // std::optional
#include <string>       // std::string
#include <string_view>  // std::string_view

namespace decode {

/// Code points: [256], by byte.
constexpr std::array<unsigned, 256> byte_alphabet() {
  std::array<unsigned, 256> code_points{};
  unsigned hidden = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    code_points[byte] = visible ? byte : hidden++;
  }
  return code_points;
}

/// Bytes in letters of the alphabet, as UTF-8.
inline std::string alphabet_from_bytes(std::string_view bytes) {
  static constexpr auto code_points = byte_alphabet();
  std::string text;
  for (const char c : bytes) {
    const unsigned code = code_points[static_cast<unsigned char>(c)];
    if (code >= 0x80) text += static_cast<char>(0xc0 | code >> 6);
    text += static_cast<char>(code >= 0x80 ? 0x80 | (code & 0x3f) : code);
  }
  return text;
}

/// The bytes of text (valid UTF-8); nothing if a character is no letter of the alphabet.
inline std::optional<std::string> bytes_from_alphabet(std::string_view text) {
  static constexpr auto bytes = [] {
    std::array<int, 0x200> inverse{};
    for (int& byte : inverse) byte = -1;
    const auto code_points = byte_alphabet();
    for (int byte = 0; byte < 256; ++byte) inverse[code_points[std::size_t(byte)]] = byte;
    return inverse;
  }();
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    unsigned code = static_cast<unsigned char>(text[at]);
    if (code >= 0xc8) return std::nullopt;  // U+0200 and above
    if (code >= 0x80) code = (code & 0x1f) << 6 | (static_cast<unsigned char>(text[++at]) & 0x3f);
    if (bytes[code] < 0) return std::nullopt;
    out += static_cast<char>(bytes[code]);
  }
  return out;
}

}  // namespace decode

// SPDX-License-Identifier: Apache-2.0
// What the Unicode standard says of a text: white space, and the four normal forms. Texts here are valid UTF-8.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t
#include <string>       // std::string
#include <string_view>  // std::string_view

namespace decode {

struct character {
  std::int32_t code;
  std::size_t bytes;
};
/// That which begins at text[at].
character character_at(std::string_view text, std::size_t at);

/// Byte at which the white space that begins at text[at] ends; `at` if there is none.
std::size_t white_space_end(std::string_view text, std::size_t at);

/// Byte at which the white space at the end of a text begins; its size if there is none.
std::size_t white_space_begin(std::string_view text);

/// How characters that can be written in several ways are written: composed or decomposed, and with `k` compatibility
/// characters, such as "ﬁ" or "①", as what they stand for.
enum class normal_form { nfc, nfd, nfkc, nfkd };

/// A text in a normal form.
/// @cost  time in proportion to the text, n log n where n marks follow a letter; for each of its bytes at most 11 of
/// the
///        result, and 24 of memory
std::string normalized(std::string_view text, normal_form form);

}  // namespace decode

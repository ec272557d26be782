// SPDX-License-Identifier: Apache-2.0
#include "unicode.hpp"

#include <algorithm>  // std::find_if, std::stable_sort
#include <vector>     // std::vector

#include <utf8proc.h>

namespace decode {
namespace {

using code_point = utf8proc_int32_t;

// The property White_Space: separators, and the controls among them.
bool is_white_space(code_point code) {
  if ((code >= 0x09 && code <= 0x0d) || code == 0x85) return true;
  const utf8proc_category_t category = utf8proc_category(code);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

int combining_class(code_point code) { return utf8proc_get_property(code)->combining_class; }

void append_decomposed(code_point code, utf8proc_option_t how, std::vector<code_point>& to) {
  code_point parts[32];  // Unicode's longest has 18
  int unused = 0;
  const auto count = utf8proc_decompose_char(code, parts, 32, how, &unused);
  to.insert(to.end(), parts, parts + count);
}

// Marks on one letter, in the order of their classes; the library's own way takes time that is quadratic in them.
void sort_marks(std::vector<code_point>& text) {
  const auto is_mark = [](code_point code) { return combining_class(code) != 0; };
  for (auto begin = text.begin(); (begin = std::find_if(begin, text.end(), is_mark)) != text.end();) {
    const auto end = std::find_if_not(begin, text.end(), is_mark);
    std::stable_sort(begin, end, [](code_point a, code_point b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

std::string to_utf8(const std::vector<code_point>& text, std::size_t length) {
  std::string out;
  for (std::size_t i = 0; i < length; ++i) {
    utf8proc_uint8_t bytes[4];
    const auto count = utf8proc_encode_char(text[i], bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
  }
  return out;
}

}  // namespace

character character_at(std::string_view text, std::size_t at) {
  character found{};
  found.bytes =
      static_cast<std::size_t>(utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                                                static_cast<utf8proc_ssize_t>(text.size() - at), &found.code));
  return found;
}

std::size_t white_space_end(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const auto [code, bytes] = character_at(text, at);
    if (!is_white_space(code)) break;
    at += bytes;
  }
  return at;
}

std::size_t white_space_begin(std::string_view text) {
  std::size_t at = text.size();
  while (at > 0) {
    std::size_t before = at - 1;
    while ((static_cast<unsigned char>(text[before]) & 0xc0) == 0x80) --before;
    if (!is_white_space(character_at(text, before).code)) break;
    at = before;
  }
  return at;
}

std::string normalized(std::string_view text, normal_form form) {
  const bool compatible = form == normal_form::nfkc || form == normal_form::nfkd;
  const bool composed = form == normal_form::nfc || form == normal_form::nfkc;
  const auto how =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<code_point> codes;
  codes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, bytes] = character_at(text, at);
    append_decomposed(code, how, codes);
    at += bytes;
  }
  sort_marks(codes);
  if (!composed) return to_utf8(codes, codes.size());
  constexpr auto compose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto length = utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), compose);
  return to_utf8(codes, static_cast<std::size_t>(length));
}

}  // namespace decode

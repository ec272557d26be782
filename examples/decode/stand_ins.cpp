// SPDX-License-Identifier: Apache-2.0
#include "stand_ins.hpp"

#include <algorithm>  // std::ranges::all_of, std::ranges::lower_bound
#include <array>      // std::array
#include <memory>     // std::unique_ptr
#include <new>        // std::bad_alloc
#include <vector>     // std::vector

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include "unicode.hpp"

namespace decode {
namespace {

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char byte) { return static_cast<unsigned char>(byte) < 0x80; });
}

struct replaced {
  utf8proc_int32_t code;
  std::array<char, 4> by;
};

// In ascending order.
std::vector<replaced> found_missing() {
  const std::string_view assigned = R"(\P{Cn})";
  int error = 0;
  PCRE2_SIZE wrong = 0;
  const std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(assigned.data()), assigned.size(), PCRE2_UTF, &error, &wrong, nullptr),
      pcre2_code_free);
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(pcre2_match_data_create(1, nullptr),
                                                                             pcre2_match_data_free);
  if (!code || !match) throw std::bad_alloc();
  std::vector<replaced> missing;
  std::array<std::array<char, 4>, 64> last{};  // of each category, with as many bytes; NUL: none yet
  std::size_t bytes_before = 0;
  for (utf8proc_int32_t c = 0x80; c < 0x110000; ++c) {
    const auto category = utf8proc_category(c);
    if (category == UTF8PROC_CATEGORY_CN || category == UTF8PROC_CATEGORY_CS || category == UTF8PROC_CATEGORY_CO)
      continue;
    std::array<char, 4> written{};
    const auto bytes =
        static_cast<std::size_t>(utf8proc_encode_char(c, reinterpret_cast<utf8proc_uint8_t*>(written.data())));
    if (bytes != bytes_before) last = {};
    bytes_before = bytes;
    auto& near = last[static_cast<std::size_t>(category)];
    if (pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(written.data()), bytes, 0, PCRE2_NO_UTF_CHECK, match.get(),
                    nullptr) > 0)
      near = written;
    else if (near[0] != '\0')
      missing.push_back({c, near});
  }
  return missing;
}

}  // namespace

stand_ins::stand_ins(std::string_view pattern) {
  for (const std::string_view numbered : {"\\x", "\\o", "\\N"})
    by_number_ = by_number_ || pattern.find(numbered) != pattern.npos;
  for (std::size_t at = 0; at < pattern.size();) {
    const auto [code, bytes] = character_at(pattern, at);
    if (code >= 0x80) named_.insert(code);
    at += bytes;
  }
}

std::optional<std::string> stand_ins::in(std::string_view text) const {
  if (by_number_ || is_ascii(text)) return std::nullopt;
  static const std::vector<replaced> missing = found_missing();
  if (missing.empty()) return std::nullopt;
  std::optional<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, bytes] = character_at(text, at);
    const auto place = std::ranges::lower_bound(missing, code, {}, &replaced::code);
    if (place != missing.end() && place->code == code && !named_.contains(code)) {
      if (!out) out.emplace(text);
      std::copy_n(place->by.begin(), bytes, out->begin() + static_cast<std::ptrdiff_t>(at));
    }
    at += bytes;
  }
  return out;
}

}  // namespace decode

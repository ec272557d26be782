// SPDX-License-Identifier: Apache-2.0
// Cuts text into pieces with a regular expression, as tokenizer.json writes them down: PCRE2 with
// Unicode classes.
#pragma once

#include <memory>       // std::unique_ptr
#include <new>          // std::bad_alloc
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "input_error.hpp"

namespace decode {

/// Which parts of a text become pieces: those that match, those between, or both.
struct split_keeps {
  bool matches = true;
  bool gaps = true;
};

class splitter {
 public:
  splitter(const std::string& pattern, split_keeps keeps, const std::string& where) : keeps_(keeps) {
    int error = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,  // whole letters
                              &error, &at, nullptr));
    if (!code_) fail(where, ": the pattern ", shown(pattern), " is wrong at byte ", at, ": ", message(error));
  }

  /// Appends the pieces of `text`, which must be valid UTF-8 (a check here, at each match, would
  /// make the whole quadratic). No piece is empty.
  void operator()(std::string_view text, std::vector<std::string_view>& pieces) const {
    const auto keep = [&](bool wanted, std::size_t first, std::size_t last) {
      if (wanted && first < last) pieces.push_back(text.substr(first, last - first));
    };
    const match_data found(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    if (!found) throw std::bad_alloc();
    std::size_t done = 0;
    while (done < text.size()) {
      const int result = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), done,
                                     PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, found.get(), nullptr);
      if (result == PCRE2_ERROR_NOMATCH) break;
      if (result < 0) fail("the tokenizer's pattern gives up on this text: ", message(result));
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(found.get());  // [begin, end)
      if (range[0] < done || range[1] <= range[0])                       // possible with \K
        fail("the tokenizer's pattern matches text before its own beginning");
      keep(keeps_.gaps, done, range[0]);
      keep(keeps_.matches, range[0], range[1]);
      done = range[1];
    }
    keep(keeps_.gaps, done, text.size());
  }

 private:
  static std::string message(int error) {
    char text[256] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
    return text;
  }

  struct release {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  using match_data = std::unique_ptr<pcre2_match_data, release>;

  std::unique_ptr<pcre2_code, release> code_;
  split_keeps keeps_;
};

}  // namespace decode

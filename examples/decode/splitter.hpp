// SPDX-License-Identifier: Apache-2.0
// Cuts text into pieces with a regular expression, as tokenizer.json writes them down: PCRE2 with
// Unicode classes. What a pattern may cost is bounded, since it is a stranger's: 256 steps wherever a match may begin,
// and where that is not enough, 10 million steps together and 64 for each byte of the text; 64 MiB of memory; 64 KiB of
// pattern.
#pragma once

#include <cstdint>      // std::uint64_t
#include <memory>       // std::unique_ptr
#include <new>          // std::bad_alloc
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::exchange

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
    if (pattern.size() > longest_pattern)
      fail(where, ": the pattern has ", pattern.size(), " bytes, but may have at most ", longest_pattern);
    int error = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,  // whole letters
                              &error, &at, nullptr));
    if (!code_) fail(where, ": the pattern ", shown(pattern), " is wrong at byte ", at, ": ", message(error));
  }

  /// Whether parts of a text become no piece.
  bool drops() const { return !keeps_.matches || !keeps_.gaps; }

  class matching;

  /// visit(piece) for the pieces of `text`, which must be valid UTF-8 (a check here, at each match, would
  /// make the whole quadratic), until it is false. No piece is empty.
  /// @param with  of this splitter, and nobody else's now
  /// @return      false if visit() was
  /// @throws      input_error where the pattern takes too many steps
  template <class Visit>
  bool operator()(std::string_view text, matching& with, Visit visit) const;

 private:
  static constexpr std::size_t longest_pattern = std::size_t{1} << 16;

  static std::string message(int error) {
    char text[256] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
    return text;
  }

  struct release {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };

  std::unique_ptr<pcre2_code, release> code_;
  split_keeps keeps_;
};

/// What matching one pattern needs and may still cost. Each text has its own.
class splitter::matching {
 public:
  explicit matching(const splitter& of)
      : found_(pcre2_match_data_create_from_pattern(of.code_.get(), nullptr)),
        limits_(pcre2_match_context_create(nullptr)) {
    if (!found_ || !limits_) throw std::bad_alloc();
    pcre2_set_heap_limit(limits_.get(), 64 * 1024);  // KiB
  }

 private:
  friend class splitter;
  static constexpr std::uint32_t few = 256;  // steps that may be taken anywhere
  static constexpr std::uint32_t most = std::uint32_t{1} << 31;

  // As pcre2_match. Its limit is one for each place where a match may begin, and it does not say how many steps were
  // taken: so where a few are not enough, places are tried one after the other, each with a limit that is doubled until
  // it suffices, and what was tried is paid for.
  int match(const pcre2_code* code, std::string_view text, std::size_t from) {
    int result = match(code, text, from, 0, few);
    if (result != PCRE2_ERROR_MATCHLIMIT) return result;
    for (std::size_t at = from; at < text.size(); at += character_at(text, at)) {
      for (std::uint32_t limit = few;; limit *= 2) {
        result = match(code, text, at, PCRE2_ANCHORED, limit);
        if (result != PCRE2_ERROR_MATCHLIMIT) break;
        if (limit > left_ || limit > most / 2) return result;
        left_ -= limit;
      }
      if (result != PCRE2_ERROR_NOMATCH) return result;
    }
    return PCRE2_ERROR_NOMATCH;
  }
  int match(const pcre2_code* code, std::string_view text, std::size_t from, std::uint32_t how, std::uint32_t limit) {
    pcre2_set_match_limit(limits_.get(), limit);
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | how, found_.get(), limits_.get());
  }
  static std::size_t character_at(std::string_view text, std::size_t at) {
    std::size_t bytes = 1;
    while (at + bytes < text.size() && (static_cast<unsigned char>(text[at + bytes]) & 0xc0) == 0x80) ++bytes;
    return bytes;
  }

  std::unique_ptr<pcre2_match_data, release> found_;
  std::unique_ptr<pcre2_match_context, release> limits_;
  std::uint64_t left_ = 10'000'000;  // steps
};

template <class Visit>
bool splitter::operator()(std::string_view text, matching& with, Visit visit) const {
  const auto keep = [&](bool wanted, std::size_t first, std::size_t last) {
    return !wanted || first >= last || visit(text.substr(first, last - first));
  };
  with.left_ += 64 * text.size();
  std::size_t done = 0;
  while (done < text.size()) {
    const int result = with.match(code_.get(), text, done);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) fail("the tokenizer's pattern gives up on this text: ", message(result));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(with.found_.get());  // [begin, end)
    if (range[0] < done || range[1] <= range[0])                             // possible with \K
      fail("the tokenizer's pattern matches text before its own beginning");
    const std::size_t before = std::exchange(done, range[1]);
    const std::size_t first = range[0];
    if (!keep(keeps_.gaps, before, first) || !keep(keeps_.matches, first, done)) return false;
  }
  return keep(keeps_.gaps, done, text.size());
}

}  // namespace decode

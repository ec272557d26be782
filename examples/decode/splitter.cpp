// SPDX-License-Identifier: Apache-2.0
#include "splitter.hpp"

#include <new>  // std::bad_alloc

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "input_error.hpp"

#if PCRE2_MAJOR == 10 && PCRE2_MINOR < 40
#error "PCRE2 10.40 or newer is needed: older ones do not know the property White_Space"
#endif

namespace decode {
namespace {

constexpr std::size_t longest_pattern = std::size_t{1} << 16;
constexpr std::uint32_t few = 256;  // steps that may be taken anywhere
constexpr std::uint32_t most_steps = std::uint32_t{1} << 31;

std::string message(int error) {
  char text[256] = {};
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return text;
}

std::size_t character_bytes(std::string_view text, std::size_t at) {
  std::size_t bytes = 1;
  while (at + bytes < text.size() && (static_cast<unsigned char>(text[at + bytes]) & 0xc0) == 0x80) ++bytes;
  return bytes;
}

// The pattern with \s and \S as Unicode's property White_Space: PCRE2's own \s takes U+180E for a space too.
std::string with_white_space(const std::string& pattern) {
  std::string out;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const char escaped = pattern[at] == '\\' && at + 1 < pattern.size() ? pattern[at + 1] : '\0';
    if (escaped == '\0') {
      out += pattern[at];
      continue;
    }
    if (escaped == 's' || escaped == 'S')
      out.append(escaped == 's' ? R"(\p)" : R"(\P)").append("{White_Space}");
    else
      out.append(pattern, at, 2);
    ++at;
  }
  return out;
}

// nullptr if the pattern is wrong, with the reason and the byte.
pcre2_code* compiled(const std::string& pattern, int& error, PCRE2_SIZE& at) {
  return pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                       PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,  // whole letters
                       &error, &at, nullptr);
}

}  // namespace

splitter::splitter(const std::string& pattern, split_keeps keeps, const std::string& where) : keeps_(keeps) {
  if (pattern.size() > longest_pattern)
    fail(where, ": the pattern has ", pattern.size(), " bytes, but may have at most ", longest_pattern);
  int error = 0;
  PCRE2_SIZE at = 0;
  code_.reset(compiled(pattern, error, at));  // as it is given, so that a complaint names the right byte
  if (code_) code_.reset(compiled(with_white_space(pattern), error, at));
  if (!code_) fail(where, ": the pattern ", shown(pattern), " is wrong at byte ", at, ": ", message(error));
  stand_ins_ = stand_ins(pattern);
}

bool splitter::may_match_nothing() const {
  std::uint32_t may = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &may);
  return may != 0;
}

std::optional<splitter::place> splitter::next(std::string_view known, std::size_t done, matching& with) const {
  const int result = with.match(code_.get(), known, done);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) fail("the tokenizer's pattern gives up on this text: ", message(result));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(with.found_.get());  // [begin, end)
  if (range[0] < done || range[1] <= range[0])                             // possible with \K
    fail("the tokenizer's pattern matches text before its own beginning");
  return place{range[0], range[1]};
}

void splitter::release::operator()(pcre2_code* code) const { pcre2_code_free(code); }
void splitter::release::operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
void splitter::release::operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }

splitter::matching::matching(const splitter& of)
    : found_(pcre2_match_data_create_from_pattern(of.code_.get(), nullptr)),
      limits_(pcre2_match_context_create(nullptr)) {
  if (!found_ || !limits_) throw std::bad_alloc();
  pcre2_set_heap_limit(limits_.get(), 64 * 1024);  // KiB
}

// As pcre2_match. Its limit is one for each place where a match may begin, and it does not say how many steps were
// taken: so where a few are not enough, places are tried one after the other, each with a limit that is doubled until
// it suffices, and what was tried is paid for.
int splitter::matching::match(const pcre2_code* code, std::string_view text, std::size_t from) {
  int result = match(code, text, from, 0, few);
  if (result != PCRE2_ERROR_MATCHLIMIT) return result;
  for (std::size_t at = from; at < text.size(); at += character_bytes(text, at)) {
    for (std::uint32_t limit = few;; limit *= 2) {
      result = match(code, text, at, PCRE2_ANCHORED, limit);
      if (result != PCRE2_ERROR_MATCHLIMIT) break;
      if (limit > left_ || limit > most_steps / 2) return result;
      left_ -= limit;
    }
    if (result != PCRE2_ERROR_NOMATCH) return result;
  }
  return PCRE2_ERROR_NOMATCH;
}

int splitter::matching::match(const pcre2_code* code, std::string_view text, std::size_t from, std::uint32_t how,
                              std::uint32_t limit) {
  pcre2_set_match_limit(limits_.get(), limit);
  return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                     PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | how, found_.get(), limits_.get());
}

}  // namespace decode

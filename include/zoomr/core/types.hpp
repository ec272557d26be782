// SPDX-License-Identifier: Apache-2.0
// L1. Index types and the class of a token.
#pragma once

#include <zoomr/core/platform.hpp>
#include <zoomr/core/version.hpp>

#include <cstdint>           // fixed widths
#include <initializer_list>  // std::initializer_list
#include <limits>            // std::numeric_limits

namespace zoomr::inline v0 {

using index_t = std::int32_t;     ///< positions, slots, counts of tokens, heads, segments
using byte_count = std::int64_t;  ///< sizes in bytes
using token_id = std::int32_t;    ///< what the tokenizer calls a token
using votes_t = std::int64_t;     ///< what heads give one segment, in the aggregator's unit

// Votes are counts of heads (head_votes), attention mass in units of 2^-24 (head_mass) or 2^-40 (pooled_mass), or a
// score as an integer that orders alike (pooled_score, `order_key`): so all of them are ranked by one comparison.

/// More bytes than any machine has: sizes that reach this are refused.
inline constexpr byte_count too_many_bytes = byte_count{1} << 60;

/// The product of some numbers, none negative; `too_many_bytes` if it is no less. Seven such products add up without
/// wrapping, whatever the numbers are: sizes are found, and refused, before anything is allocated.
constexpr std::int64_t bounded_product(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (factor == 0) return 0;
    product = product > too_many_bytes / factor ? too_many_bytes : product * factor;
  }
  return product < too_many_bytes ? product : too_many_bytes;
}

/// "No limit" for every field that limits a number of tokens or segments.
inline constexpr index_t unlimited = (std::numeric_limits<index_t>::max)();

// As constants, since device code may not call the standard library's functions.
inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// The same bits as another type of the same size; std::bit_cast, for device code too.
template <class To, class From>
ZOOMR_HD constexpr To bits_as(const From& from) {
  return __builtin_bit_cast(To, from);
}

/// True for NaN. Found by its bits, so that it is found too where the compiler may assume that no number is NaN
/// (-ffinite-math-only), and take `x != x` for false.
ZOOMR_HD constexpr bool is_nan(float x) { return (bits_as<std::uint32_t>(x) & 0x7fffffffu) > 0x7f800000u; }

/// What a segmenter and a refresh rule need of a token: flags for each token id, in a table that the caller owns (which
/// ids are delimiters depends on the tokenizer). Flags may be joined. The last three are of a token, not of its id: a
/// cache sets them for the spans of a step's item, and does not read them in the table.
enum class token_class : std::uint16_t {
  plain = 0,
  delimiter = 1,      // ends a sentence
  thought_begin = 2,  // <thought>
  thought_end = 4,    // </thought>
  summary_begin = 8,  // <summary>, <|begin_of_summary|>
  summary_end = 16,   // </summary>, <|end_of_summary|>
  mark = 32,          // ends a sentence if the next token is blank, which is decided one token later
  blank = 64,         // begins with white space, or is no text
  message = 128,      // begins a message of a conversation: <|im_start|>, <start_of_turn>, [INST]
  pinned = 256,       // in a span that is pinned
  question = 512,     // in a span that is a question
  cut = 1024,         // of other spans than the token before it: what is open ends there
};

ZOOMR_HD constexpr token_class operator|(token_class a, token_class b) {
  return static_cast<token_class>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
ZOOMR_HD constexpr token_class operator&(token_class a, token_class b) {
  return static_cast<token_class>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}

/// The id of a token that the tokenizer does not have: a patch of an image, an embedding of a soft prompt. Its class is
/// `plain`, whatever the table of classes holds; any table has room for it.
inline constexpr token_id no_class = (std::numeric_limits<token_id>::max)();

/// The flags that an id has in a table of classes, and those of the spans that a token is in.
inline constexpr token_class table_classes = static_cast<token_class>(0xff);
inline constexpr token_class span_classes = token_class::pinned | token_class::question;

/// True if `classes` has any of the flags of `mask`.
ZOOMR_HD constexpr bool has(token_class classes, token_class mask) {
  return (static_cast<unsigned>(classes) & static_cast<unsigned>(mask)) != 0;
}

/// The class of a token after one of the class `before`, with the flag `cut` if their spans differ.
ZOOMR_HD constexpr token_class cut_between(token_class before, token_class of_token) {
  const bool cut = (before & span_classes) != (of_token & span_classes);
  const token_class rest = of_token & (table_classes | span_classes);
  return cut ? rest | token_class::cut : rest;
}

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L7. Which tokens of a vocabulary end sentences: the table of classes that policies read, from the tokens' bytes.
#pragma once

#include <zoomr/core/types.hpp>

#include <cstddef>      // std::size_t
#include <string_view>  // std::string_view
#include <vector>       // std::vector

namespace zoomr::inline v0 {

/// Where . ! ? and … end a sentence: wherever they stand, as in 3.14 and "Dr.", or before white space alone, which
/// takes one more token to decide. Marks of other scripts, such as 。 and ؟, and empty lines always do.
enum class mark_rule { anywhere, before_blank };

/// Whether the end of a line is the end of a segment too, if that is long enough (`sentences.shortest_line`): of a row
/// of a table, an item of a list, a line of code. Without it lines without marks are one segment, up to `longest`.
enum class line_rule { go_on, end_segments };

namespace detail {

struct character_range {
  char32_t first, last;
};

// Of Unicode 14.
// clang-format off
/// White_Space.
inline constexpr character_range blanks[] = {
    {0x9, 0xd}, {0x20, 0x20}, {0x85, 0x85}, {0xa0, 0xa0}, {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
    {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};
/// Closing marks and quotes of either side (Pe, Pf, Pi), ", ' and *.
inline constexpr character_range closing_marks[] = {
    {0x22, 0x22}, {0x27, 0x27}, {0x29, 0x2a}, {0x5d, 0x5d}, {0x7d, 0x7d}, {0xab, 0xab}, {0xbb, 0xbb}, {0xf3b, 0xf3b},
    {0xf3d, 0xf3d}, {0x169c, 0x169c}, {0x2018, 0x2019}, {0x201b, 0x201d}, {0x201f, 0x201f}, {0x2039, 0x203a},
    {0x2046, 0x2046}, {0x207e, 0x207e}, {0x208e, 0x208e}, {0x2309, 0x2309}, {0x230b, 0x230b}, {0x232a, 0x232a},
    {0x2769, 0x2769}, {0x276b, 0x276b}, {0x276d, 0x276d}, {0x276f, 0x276f}, {0x2771, 0x2771}, {0x2773, 0x2773},
    {0x2775, 0x2775}, {0x27c6, 0x27c6}, {0x27e7, 0x27e7}, {0x27e9, 0x27e9}, {0x27eb, 0x27eb}, {0x27ed, 0x27ed},
    {0x27ef, 0x27ef}, {0x2984, 0x2984}, {0x2986, 0x2986}, {0x2988, 0x2988}, {0x298a, 0x298a}, {0x298c, 0x298c},
    {0x298e, 0x298e}, {0x2990, 0x2990}, {0x2992, 0x2992}, {0x2994, 0x2994}, {0x2996, 0x2996}, {0x2998, 0x2998},
    {0x29d9, 0x29d9}, {0x29db, 0x29db}, {0x29fd, 0x29fd}, {0x2e02, 0x2e05}, {0x2e09, 0x2e0a}, {0x2e0c, 0x2e0d},
    {0x2e1c, 0x2e1d}, {0x2e20, 0x2e21}, {0x2e23, 0x2e23}, {0x2e25, 0x2e25}, {0x2e27, 0x2e27}, {0x2e29, 0x2e29},
    {0x2e56, 0x2e56}, {0x2e58, 0x2e58}, {0x2e5a, 0x2e5a}, {0x2e5c, 0x2e5c}, {0x3009, 0x3009}, {0x300b, 0x300b},
    {0x300d, 0x300d}, {0x300f, 0x300f}, {0x3011, 0x3011}, {0x3015, 0x3015}, {0x3017, 0x3017}, {0x3019, 0x3019},
    {0x301b, 0x301b}, {0x301e, 0x301f}, {0xfd3e, 0xfd3e}, {0xfe18, 0xfe18}, {0xfe36, 0xfe36}, {0xfe38, 0xfe38},
    {0xfe3a, 0xfe3a}, {0xfe3c, 0xfe3c}, {0xfe3e, 0xfe3e}, {0xfe40, 0xfe40}, {0xfe42, 0xfe42}, {0xfe44, 0xfe44},
    {0xfe48, 0xfe48}, {0xfe5a, 0xfe5a}, {0xfe5c, 0xfe5c}, {0xfe5e, 0xfe5e}, {0xff09, 0xff09}, {0xff3d, 0xff3d},
    {0xff5d, 0xff5d}, {0xff60, 0xff60}, {0xff63, 0xff63}};
/// Sentence_Terminal.
inline constexpr character_range sentence_marks[] = {
    {0x21, 0x21}, {0x2e, 0x2e}, {0x3f, 0x3f}, {0x589, 0x589}, {0x61d, 0x61f}, {0x6d4, 0x6d4}, {0x700, 0x702},
    {0x7f9, 0x7f9}, {0x837, 0x837}, {0x839, 0x839}, {0x83d, 0x83e}, {0x964, 0x965}, {0x104a, 0x104b}, {0x1362, 0x1362},
    {0x1367, 0x1368}, {0x166e, 0x166e}, {0x1735, 0x1736}, {0x1803, 0x1803}, {0x1809, 0x1809}, {0x1944, 0x1945},
    {0x1aa8, 0x1aab}, {0x1b5a, 0x1b5b}, {0x1b5e, 0x1b5f}, {0x1b7d, 0x1b7e}, {0x1c3b, 0x1c3c}, {0x1c7e, 0x1c7f},
    {0x203c, 0x203d}, {0x2047, 0x2049}, {0x2e2e, 0x2e2e}, {0x2e3c, 0x2e3c}, {0x2e53, 0x2e54}, {0x3002, 0x3002},
    {0xa4ff, 0xa4ff}, {0xa60e, 0xa60f}, {0xa6f3, 0xa6f3}, {0xa6f7, 0xa6f7}, {0xa876, 0xa877}, {0xa8ce, 0xa8cf},
    {0xa92f, 0xa92f}, {0xa9c8, 0xa9c9}, {0xaa5d, 0xaa5f}, {0xaaf0, 0xaaf1}, {0xabeb, 0xabeb}, {0xfe52, 0xfe52},
    {0xfe56, 0xfe57}, {0xff01, 0xff01}, {0xff0e, 0xff0e}, {0xff1f, 0xff1f}, {0xff61, 0xff61}, {0x10a56, 0x10a57},
    {0x10f55, 0x10f59}, {0x10f86, 0x10f89}, {0x11047, 0x11048}, {0x110be, 0x110c1}, {0x11141, 0x11143},
    {0x111c5, 0x111c6}, {0x111cd, 0x111cd}, {0x111de, 0x111df}, {0x11238, 0x11239}, {0x1123b, 0x1123c},
    {0x112a9, 0x112a9}, {0x1144b, 0x1144c}, {0x115c2, 0x115c3}, {0x115c9, 0x115d7}, {0x11641, 0x11642},
    {0x1173c, 0x1173e}, {0x11944, 0x11944}, {0x11946, 0x11946}, {0x11a42, 0x11a43}, {0x11a9b, 0x11a9c},
    {0x11c41, 0x11c42}, {0x11ef7, 0x11ef8}, {0x16a6e, 0x16a6f}, {0x16af5, 0x16af5}, {0x16b37, 0x16b38},
    {0x16b44, 0x16b44}, {0x16e98, 0x16e98}, {0x1bc9f, 0x1bc9f}, {0x1da88, 0x1da88}};
// clang-format on

template <std::size_t N>
constexpr bool is_in(const character_range (&ranges)[N], char32_t c) {
  std::size_t low = 0, high = N;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (ranges[middle].last < c) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < N && ranges[low].first <= c;
}

inline constexpr char32_t no_character = 0xffffffff;

/// The character at `at`, which moves to the next one; no_character if the bytes there are not one of UTF-8.
constexpr char32_t next_character(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(at++);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - at < static_cast<std::size_t>(more)) return no_character;
  char32_t c = lead & (0x3fu >> more);
  for (int i = 0; i < more; ++i, ++at) {
    if ((byte(at) & 0xc0) != 0x80) return no_character;
    c = c << 6 | (byte(at) & 0x3fu);
  }
  const bool too_long = more == 2 ? c < 0x800 : more == 3 && c < 0x10000;
  const bool surrogate = c >= 0xd800 && c < 0xe000;
  return too_long || surrogate || c > 0x10ffff ? no_character : c;
}

/// What the bytes of a token mean for a sentence's end.
struct token_ending {
  bool text = true;          // whole characters
  bool sure = false;         // a mark of another script at its end, whatever is before it; or an empty line
  bool marks = false;        // one of . ! ? … and nothing but white space and closing marks around it
  bool blank_first = false;  // white space
  bool blank_last = false;
};

constexpr token_ending ending_of(std::string_view text) {
  token_ending found;
  bool empty_line = false, others = false;  // others: marks of other scripts, with nothing but marks after them
  bool mark = false, only_marks = true;
  char32_t before = 0;
  int line_ends = 0;  // next to each other; CR LF is one
  for (std::size_t at = 0; at < text.size();) {
    const bool first = at == 0;
    const char32_t c = next_character(text, at);
    if (c == no_character) return {.text = false};
    const bool blank = is_in(blanks, c);
    const bool common = c == U'.' || c == U'!' || c == U'?' || c == U'\u2026';
    const bool other = !common && is_in(sentence_marks, c);
    const bool closing = blank || is_in(closing_marks, c);
    if (first) found.blank_first = blank;
    found.blank_last = blank;
    mark = mark || common;
    only_marks = only_marks && (common || closing);
    others = other || (others && (common || closing));
    const bool line_end = c == U'\n' || c == U'\r';
    if (!line_end) line_ends = 0;
    if (line_end && !(c == U'\n' && before == U'\r')) ++line_ends;
    empty_line = empty_line || line_ends > 1;
    before = c;
  }
  found.sure = empty_line || others;
  found.marks = mark && only_marks;
  return found;
}

}  // namespace detail

/// The classes of a vocabulary for policies of sentences.
///
/// A token is a `delimiter` if it is one of . ! ? … with nothing but white space, closing marks and marks around it, if
/// it ends with another character of Unicode's property Sentence_Terminal and such things, or if it holds an empty line
/// (LF or CR LF). A mark whose bytes are in several tokens is not seen. Marks of thoughts and summaries are the
/// model's, and are added by the caller: `classes[id] = token_class::thought_begin`.
///
/// @param tokens  of the vocabulary
/// @param text    text(id), convertible to std::string_view: the bytes of a token; empty for one that is no text, such
///                as one that ends a turn
/// @param rule    with before_blank, tokens that end with . ! ? or … and no white space are of the class `mark`, and
///                those are `blank` that begin with white space or are no text
/// @param lines   with end_segments, other tokens that hold a line feed are of both classes, `delimiter` and `mark`
/// @return        [tokens]
template <class Text>
std::vector<token_class> classify_sentences(index_t tokens, Text text, mark_rule rule = mark_rule::anywhere,
                                            line_rule lines = line_rule::go_on) {
  std::vector<token_class> classes(static_cast<std::size_t>(tokens), token_class::plain);
  const bool waits = rule == mark_rule::before_blank;
  for (index_t id = 0; id < tokens; ++id) {
    const auto& bytes = text(id);
    const std::string_view view(bytes);
    const detail::token_ending ending = detail::ending_of(view);
    token_class& known = classes[static_cast<std::size_t>(id)];
    if (waits && (view.empty() || ending.blank_first)) known = known | token_class::blank;
    if (ending.sure) {
      known = known | token_class::delimiter;
    } else if (ending.marks) {
      known = known | (waits && !ending.blank_last ? token_class::mark : token_class::delimiter);
    } else if (lines == line_rule::end_segments && view.find('\n') != view.npos) {
      known = known | token_class::delimiter | token_class::mark;
    }
  }
  return classes;
}

}  // namespace zoomr::inline v0

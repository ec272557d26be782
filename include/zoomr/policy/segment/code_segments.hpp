// SPDX-License-Identifier: Apache-2.0
// L4. Functions and blocks of source code, by empty lines and by lines without indentation.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Closes a segment at the end of a line, which is decided at the token after it. Two signs begin a block: an empty
/// line, and a line without indentation, whose first token is not `blank`. Both together close any segment, one alone
/// closes a segment of at least `shortest_block` tokens, and the end of any line one of at least half of `longest`.
/// So a decorator stays with its function, and a long function is cut between lines. `longest` tokens, and the end of
/// the prompt, close a segment in any case.
///
/// A delimiter is the end of a line, and one that is no mark an empty line. The table of classes must know tokens that
/// are `blank`, and line ends: classify_sentences with mark_rule::before_blank and line_rule::end_segments.
struct code_segments {
  using role = role::segmenter;
  static constexpr const char* name = "code_segments";
  static constexpr bool reads_classes = true;
  enum class line : std::uint8_t { goes_on, ended, empty };
  struct state {
    index_t begin = 0;          // of the open segment
    line last = line::goes_on;  // the line in which its last token is
    friend constexpr bool operator==(const state&, const state&) = default;
  };

  index_t longest = 256;        // tokens
  index_t shortest_block = 32;  // tokens

  ZOOMR_HD constexpr void feed(state& open, token_class classes, index_t position, closings& out) const {
    using enum token_class;
    const bool line_end = has(classes, delimiter), top_level = !has(classes, blank);
    const bool empty_again = open.last != line::goes_on && line_end && !top_level;
    if (!empty_again && block_ends(open.last, top_level, position - open.begin)) close(open, position, position, out);

    const bool empty = empty_again || !has(classes, mark);
    open.last = !line_end ? line::goes_on : empty ? line::empty : line::ended;
    if (position + 1 - open.begin >= longest) close(open, position + 1, position, out);
  }
  ZOOMR_HD constexpr void end_of_prompt(state& open, index_t position, closings& out) const {
    if (open.begin <= position) close(open, position + 1, position, out);
  }
  ZOOMR_HD constexpr void cut(state& open, index_t position, closings& out) const {
    if (open.begin < position) close(open, position, position, out);
  }
  ZOOMR_HD constexpr index_t open_begin(const state& open) const { return open.begin; }
  constexpr const char* problem() const {
    return longest < 1 || shortest_block < 1 ? "code_segments: longest and shortest_block must be at least 1" : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("longest", self.longest);
    visit("shortest_block", self.shortest_block);
  }
  friend constexpr bool operator==(const code_segments&, const code_segments&) = default;

 private:
  // Whether the open segment ends with its last token.
  ZOOMR_HD constexpr bool block_ends(line last, bool top_level, index_t tokens) const {
    if (last == line::goes_on) return false;
    const bool empty = last == line::empty;
    return (empty && top_level) || ((empty || top_level) && tokens >= shortest_block) || tokens >= longest / 2;
  }
  ZOOMR_HD static constexpr void close(state& open, index_t end, index_t position, closings& out) {
    out.add({open.begin, end, end, open.begin, end, position});
    open = {.begin = end};
  }
};

static_assert(segmenter<code_segments>);

}  // namespace zoomr::inline v0

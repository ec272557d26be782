// SPDX-License-Identifier: Apache-2.0
// L4. Sentences: a delimiter ends its sentence, and so does a mark before a blank.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Closes a segment at each delimiter, at `longest` tokens, and at the end of the prompt. The delimiter belongs to the
/// sentence that it ends, and to its cue. Delimiters in a row close sentences of one token each. A `mark` is a
/// delimiter only if the next token is `blank`: its sentence then closes at that token, which begins the next one.
/// A token that is a delimiter and a mark is the end of a line: it closes a segment of at least `shortest_line` tokens,
/// so that rows of a table, items of a list, JSON and code are segments, and lines of wrapped text are not.
/// @source  SentenceKV, arXiv:2504.00970. Differs: `longest`, so that capacity is defined without punctuation.
struct sentences {
  using role = role::segmenter;
  static constexpr const char* name = "sentences";
  static constexpr bool reads_classes = true;
  struct state {
    index_t begin = 0;  // of the open sentence; its complement after a mark, so that states need no more bytes
    friend constexpr bool operator==(const state&, const state&) = default;
  };

  index_t longest = 256;       // tokens
  index_t shortest_line = 32;  // tokens; 1: each line ends a segment

  ZOOMR_HD constexpr void feed(state& open, token_class classes, index_t position, closings& out) const {
    using enum token_class;
    const bool behind_mark = open.begin < 0;
    open.begin = open_begin(open);
    if (behind_mark && has(classes, blank)) close(open, position, position, out);
    const index_t tokens = position + 1 - open.begin;
    const bool line_goes_on = has(classes, mark) && tokens < shortest_line;
    if ((has(classes, delimiter) && !line_goes_on) || tokens >= longest) {
      close(open, position + 1, position, out);
    } else if (has(classes, mark) && !has(classes, delimiter)) {
      open.begin = ~open.begin;
    }
  }
  ZOOMR_HD constexpr void end_of_prompt(state& open, index_t position, closings& out) const {
    open.begin = open_begin(open);
    if (open.begin <= position) close(open, position + 1, position, out);
  }
  ZOOMR_HD constexpr void cut(state& open, index_t position, closings& out) const {
    open.begin = open_begin(open);
    if (open.begin < position) close(open, position, position, out);
  }
  ZOOMR_HD constexpr index_t open_begin(const state& open) const { return open.begin < 0 ? ~open.begin : open.begin; }
  constexpr const char* problem() const {
    if (longest < 1) return "sentences: longest must be at least 1";
    return shortest_line < 1 ? "sentences: shortest_line must be at least 1" : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("longest", self.longest);
    visit("shortest_line", self.shortest_line);
  }
  friend constexpr bool operator==(const sentences&, const sentences&) = default;

 private:
  ZOOMR_HD static constexpr void close(state& open, index_t end, index_t position, closings& out) {
    out.add({open.begin, end, end, open.begin, end, position});
    open.begin = end;
  }
};

static_assert(segmenter<sentences>);

}  // namespace zoomr::inline v0

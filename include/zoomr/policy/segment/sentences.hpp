// SPDX-License-Identifier: Apache-2.0
// L4. Sentences: a delimiter ends its sentence.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr {
inline namespace v0 {

/// Closes a segment at each delimiter, at `longest` tokens, and at the end of the prompt. The delimiter belongs to the
/// sentence that it ends, and to its cue. Delimiters in a row close sentences of one token each.
/// @source  SentenceKV, arXiv:2504.00970. Differs: `longest`, so that capacity is defined without punctuation.
struct sentences {
  using role = role::segmenter;
  static constexpr const char* name = "sentences";
  static constexpr bool reads_classes = true;
  struct state {
    index_t begin = 0;
    friend constexpr bool operator==(const state&, const state&) = default;
  };

  index_t longest = 256;  // tokens

  ZOOMR_HD constexpr void feed(state& open, token_class classes, index_t position, closings& out) const {
    if (has(classes, token_class::delimiter) || position + 1 - open.begin >= longest) close(open, position + 1, out);
  }
  ZOOMR_HD constexpr void end_of_prompt(state& open, index_t position, closings& out) const {
    if (open.begin <= position) close(open, position + 1, out);
  }
  ZOOMR_HD constexpr index_t open_begin(const state& open) const { return open.begin; }
  constexpr const char* problem() const { return longest < 1 ? "sentences: longest must be at least 1" : nullptr; }
  static constexpr void each_field(auto& self, auto visit) { visit("longest", self.longest); }
  friend constexpr bool operator==(const sentences&, const sentences&) = default;

 private:
  ZOOMR_HD static constexpr void close(state& open, index_t end, closings& out) {
    out.add({open.begin, end, end, open.begin, end, end - 1});
    open.begin = end;
  }
};

static_assert(segmenter<sentences>);

}  // namespace v0
}  // namespace zoomr

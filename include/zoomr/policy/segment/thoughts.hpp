// SPDX-License-Identifier: Apache-2.0
// L4. Thoughts with the summaries that the model writes after them.
//
// Both forms of markup work, and the table of token classes decides which: with summary markers alone the
// thought is all text since the previous summary; with thought markers too, <thought> begins one, and text
// outside of both is a segment of its own without a summary.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Closes a thought where its summary ends; without a summary, where the next token shows that none comes.
///
/// The cue is the summary's tokens without markers, or with `own_cue` the thought's own tokens; if those are none, the
/// other. Before the end of the prompt, text outside of the markup closes at the first delimiter or mark in the second
/// half of `prompt_piece` tokens, after `prompt_piece` tokens in any case, and at the end. A segment of `longest`
/// tokens closes as it is; a summary that comes later stands alone.
/// @source  ZoomR, arXiv:2604.10898. Differs: `longest`, `own_cue`, thoughts without a summary, and the prompt's pieces
///          are undescribed there and decided here.
struct thoughts {
  using role = role::segmenter;
  static constexpr const char* name = "thoughts";
  static constexpr bool reads_classes = true;
  /// What the open segment is so far: text, which with summary markers alone is a thought; a thought that a marker has
  /// begun; one that has ended, so that the next token shows whether a summary comes; a thought and its summary.
  enum class part : std::uint8_t { text, thought, waiting, summary };
  struct state {
    index_t begin = 0;      // first token of the open segment
    index_t cue_begin = 0;  // first token of its own text, after <thought>
    index_t cue_end = 0;    // end of its own text, once it has come
    index_t split = 0;      // where its summary begins, once it has come
    part in = part::text;
    bool generated = false;  // the prompt has ended
    friend constexpr bool operator==(const state&, const state&) = default;
  };

  index_t longest = 4096;     // tokens of a thought and its summary
  index_t prompt_piece = 64;  // tokens, at most
  bool own_cue = false;       // a thought is found by its own keys, not by its summary's

  ZOOMR_HD constexpr void feed(state& open, token_class classes, index_t position, closings& out) const {
    using enum token_class;
    const index_t next = position + 1;
    // No summary comes: the thought closes after the token before, and this one begins the next segment.
    if (open.in == part::waiting && !has(classes, summary_begin)) close(open, position, position, out);
    switch (open.in) {
      case part::text:
      case part::waiting:
      case part::thought:
        if (has(classes, summary_begin)) {
          if (open.in != part::waiting) open.cue_end = position;
          open.split = position;
          open.in = part::summary;
        } else if (has(classes, thought_begin)) {
          if (open.begin < position) close(open, position, position, out);
          open.cue_begin = next;
          open.in = part::thought;
        } else if (has(classes, thought_end) && open.in == part::thought) {
          open.cue_end = position;
          open.in = part::waiting;
        }
        break;
      case part::summary:
        if (has(classes, summary_end)) close(open, next, position, out, position);
        break;
    }
    // A close above has made this 0, or 1 if the token has begun the next segment: so that at most two close here.
    const index_t tokens = next - open.begin;
    const bool piece = !open.generated && open.in == part::text &&
                       (tokens >= prompt_piece || (has(classes, delimiter | mark) && tokens > prompt_piece / 2));
    if (open.begin < next && (tokens >= longest || piece)) close(open, next, position, out);
  }

  ZOOMR_HD constexpr void end_of_prompt(state& open, index_t position, closings& out) const {
    open.generated = true;
    if (open.in == part::text && open.begin <= position) close(open, position + 1, position, out);
  }
  ZOOMR_HD constexpr void cut(state& open, index_t position, closings& out) const {
    if (open.begin < position) close(open, position, position, out);
  }
  ZOOMR_HD constexpr index_t open_begin(const state& open) const { return open.begin; }
  constexpr const char* problem() const {
    return longest < 1 || prompt_piece < 1 ? "thoughts: longest and prompt_piece must be at least 1" : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("longest", self.longest);
    visit("prompt_piece", self.prompt_piece);
    visit("own_cue", self.own_cue);
  }
  friend constexpr bool operator==(const thoughts&, const thoughts&) = default;

 private:
  // Closes [begin, end) at the token at `position`; what follows is text that begins at `end`. A summary's
  // own tokens end at `summary_cue_end`: before its end marker, if it has one.
  ZOOMR_HD constexpr void close(state& open, index_t end, index_t position, closings& out,
                                index_t summary_cue_end = unlimited) const {
    segment closed{open.begin, end, end, open.cue_begin, end, position};
    if (open.in == part::waiting) closed.cue_end = open.cue_end;
    if (open.in == part::summary) {
      closed.split = open.split;
      closed.cue_end = open.cue_end;
      const index_t of_summary = summary_cue_end < end ? summary_cue_end : end;
      const bool none_of_its_own = open.cue_begin >= open.cue_end;
      if (own_cue ? none_of_its_own : open.split + 1 < of_summary) {
        closed.cue_begin = open.split + 1;
        closed.cue_end = of_summary;
      }
    }
    if (closed.cue_begin >= closed.cue_end) {
      closed.cue_begin = closed.begin;
      closed.cue_end = closed.end;
    }
    out.add(closed);
    open = {end, end, end, end, part::text, open.generated};
  }
};

static_assert(segmenter<thoughts>);

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// Token streams as text, so that a test can show what it feeds: one letter for each token,
//   .  delimiter    <  thought_begin    >  thought_end    [  summary_begin    ]  summary_end
//   !  mark         _  blank            $  delimiter and mark: the end of a line
//   %  the end of a line that is white space    =  delimiter and blank: empty lines    P  pinned
// any other letter a plain token, and | the end of the prompt (no token).
#pragma once

#include <zoomr/policy/concepts.hpp>

#include <ostream>  // std::ostream
#include <string>   // std::string
#include <vector>   // std::vector

namespace zoomr::inline v0 {

inline std::ostream& operator<<(std::ostream& out, const segment& s) {
  return out << "{" << s.begin << ", " << s.split << ", " << s.end << ", " << s.cue_begin << ", " << s.cue_end << ", "
             << s.closed_at << "}";
}

}  // namespace zoomr::inline v0

namespace unit {

inline zoomr::token_class class_of(char token) {
  using enum zoomr::token_class;
  switch (token) {
    case '.':
      return delimiter;
    case '!':
      return mark;
    case '_':
      return blank;
    case '$':
      return delimiter | mark;
    case '%':
      return delimiter | mark | blank;
    case '=':
      return delimiter | blank;
    case 'P':
      return pinned;
    case '<':
      return thought_begin;
    case '>':
      return thought_end;
    case '[':
      return summary_begin;
    case ']':
      return summary_end;
    default:
      return plain;
  }
}

using segment_list = std::vector<zoomr::segment>;

/// The segments that `split` closes in `stream`, beginning with `state`, which goes on to the end of the stream.
template <class Segmenter>
segment_list closed_in(const Segmenter& split, const std::string& stream, typename Segmenter::state& state) {
  segment_list closed;
  zoomr::index_t position = -1;
  for (const char token : stream) {
    zoomr::closings now;
    if (token == '|') {
      split.end_of_prompt(state, position, now);
    } else {
      split.feed(state, class_of(token), ++position, now);
    }
    closed.insert(closed.end(), now.at, now.at + now.count);
  }
  return closed;
}

template <class Segmenter>
segment_list closed_in(const Segmenter& split, const std::string& stream) {
  typename Segmenter::state state{};
  return closed_in(split, stream, state);
}

/// A segment without a summary, closed by its last token, with all of itself as its cue.
inline zoomr::segment piece(zoomr::index_t begin, zoomr::index_t end) { return {begin, end, end, begin, end, end - 1}; }

}  // namespace unit

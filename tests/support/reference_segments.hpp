// SPDX-License-Identifier: Apache-2.0
// Segmentation, described once more: not token by token, but by searching the whole text for what ends a segment
// first.
#pragma once

#include <zoomr/policy/segment.hpp>
#include <zoomr/policy/segment/code_segments.hpp>
#include <zoomr/policy/segment/fixed_pages.hpp>
#include <zoomr/policy/segment/sentences.hpp>
#include <zoomr/policy/segment/thoughts.hpp>
#include <zoomr/policy/segment/unsegmented.hpp>

#include <algorithm>  // std::min
#include <optional>   // std::optional
#include <utility>    // std::pair
#include <vector>     // std::vector

namespace reference {

using zoomr::index_t;
using zoomr::segment;
using zoomr::token_class;

inline constexpr std::int64_t nowhere = std::int64_t{1} << 40;

/// The classes of all tokens, and where the prompt ends (`nowhere`: not yet).
struct text {
  std::vector<token_class> classes;
  std::int64_t prompt_end = nowhere;

  std::int64_t size() const { return static_cast<std::int64_t>(classes.size()); }
  bool is(std::int64_t position, token_class wanted) const {
    return position < size() && zoomr::has(classes[static_cast<std::size_t>(position)], wanted);
  }
  /// The first token at or after `from` of that class.
  std::int64_t find(token_class wanted, std::int64_t from) const {
    for (std::int64_t position = from; position < size(); ++position) {
      if (is(position, wanted)) return position;
    }
    return nowhere;
  }
  /// The first token after `begin` that is in other spans than the one before it: a segment ends there.
  std::int64_t find_cut(std::int64_t begin) const {
    const auto spans = [&](std::int64_t t) {
      return std::pair(is(t, token_class::pinned), is(t, token_class::question));
    };
    for (std::int64_t position = begin + 1; position < size(); ++position) {
      if (spans(position) != spans(position - 1)) return position;
    }
    return nowhere;
  }
};

/// Tokens [begin, last] without a summary, closed by their last token.
inline segment plain_segment(std::int64_t begin, std::int64_t last) {
  const auto first = static_cast<index_t>(begin);
  const auto end = static_cast<index_t>(last + 1);
  return {first, end, end, first, end, end - 1};
}

/// Tokens [begin, cut) that a span's begin or end has cut off.
inline segment cut_segment(std::int64_t begin, std::int64_t cut) {
  segment made = plain_segment(begin, cut - 1);
  made.closed_at = made.end;
  return made;
}

inline std::optional<segment> next_segment(const zoomr::unsegmented&, const text& of, std::int64_t begin) {
  const std::int64_t cut = of.find_cut(begin);
  return cut < of.size() ? std::optional(cut_segment(begin, cut)) : std::nullopt;
}

inline std::optional<segment> next_segment(const zoomr::fixed_pages& by, const text& of, std::int64_t begin) {
  const std::int64_t last = begin + by.longest - 1, cut = of.find_cut(begin);
  if (cut <= last) return cut_segment(begin, cut);
  return last < of.size() ? std::optional(plain_segment(begin, last)) : std::nullopt;
}

inline std::optional<segment> next_segment(const zoomr::sentences& by, const text& of, std::int64_t begin) {
  std::int64_t end = of.find(token_class::delimiter, begin);
  while (of.is(end, token_class::mark) && end + 1 - begin < by.shortest_line) {
    end = of.find(token_class::delimiter, end + 1);
  }
  std::int64_t last = std::min(end, begin + by.longest - 1);
  if (begin < of.prompt_end) last = std::min(last, of.prompt_end - 1);
  const std::int64_t cut = of.find_cut(begin);
  for (std::int64_t mark = begin; (mark = of.find(token_class::mark, mark)) < std::min(last, cut); ++mark) {
    const bool waits = !of.is(mark, token_class::delimiter);
    if (waits && of.is(mark + 1, token_class::blank)) return cut_segment(begin, mark + 1);
  }
  if (cut <= last) return cut_segment(begin, cut);
  return last < of.size() ? std::optional(plain_segment(begin, last)) : std::nullopt;
}

/// Code is cut where a line begins: before a token that follows a delimiter and is not itself white space up to a
/// line's end. The lines before it are empty if they end with a delimiter that is no mark, or with two delimiters.
inline std::optional<segment> next_segment(const zoomr::code_segments& by, const text& of, std::int64_t begin) {
  const auto empty_line = [&](std::int64_t at) {
    return of.is(at, token_class::delimiter) && of.is(at, token_class::blank);
  };
  std::int64_t last = begin + by.longest - 1;
  if (begin < of.prompt_end) last = std::min(last, of.prompt_end - 1);
  const std::int64_t cut = of.find_cut(begin);
  for (std::int64_t end = begin + 1; end <= last && end < cut && end < of.size(); ++end) {
    if (!of.is(end - 1, token_class::delimiter) || empty_line(end)) continue;
    const bool two_ends = end - 2 >= begin && of.is(end - 2, token_class::delimiter) && empty_line(end - 1);
    const int signs = (two_ends || !of.is(end - 1, token_class::mark)) + !of.is(end, token_class::blank);
    const std::int64_t least[] = {by.longest / 2, std::min(by.shortest_block, by.longest / 2), 1};
    if (end - begin >= least[signs]) return cut_segment(begin, end);
  }
  if (cut <= last) return cut_segment(begin, cut);
  return last < of.size() ? std::optional(plain_segment(begin, last)) : std::nullopt;
}

/// A thought ends with the first of: its summary's end; the token after </thought>, if that begins no summary; the next
/// <thought>; `longest` tokens; and if it is text without markers, in the prompt, a sentence that ends in the second
/// half of a piece, a whole piece, or the prompt's end.
inline std::optional<segment> next_segment(const zoomr::thoughts& by, const text& of, std::int64_t begin) {
  const bool marked = of.is(begin, token_class::thought_begin);
  const std::int64_t thought_end = marked ? of.find(token_class::thought_end, begin + 1) : nowhere;
  const std::int64_t summary = of.find(token_class::summary_begin, begin);
  const std::int64_t summary_end = of.find(token_class::summary_end, summary == nowhere ? of.size() : summary + 1);
  const std::int64_t next_thought = of.find(token_class::thought_begin, begin + 1);

  std::int64_t end = nowhere;
  std::int64_t closed_at = nowhere;
  const auto may_end = [&](std::int64_t at, std::int64_t token) {
    if (token < closed_at) end = at, closed_at = token;
  };
  may_end(of.find_cut(begin), of.find_cut(begin));
  may_end(summary_end + 1, summary_end);
  if (next_thought < summary) may_end(next_thought, next_thought);
  if (thought_end < summary && !of.is(thought_end + 1, token_class::summary_begin)) {
    may_end(thought_end + 1, thought_end + 1);
  }
  may_end(begin + by.longest, begin + by.longest - 1);
  if (!marked && begin < of.prompt_end) {
    const std::int64_t sentence = of.find(token_class::delimiter | token_class::mark, begin + by.prompt_piece / 2);
    const std::int64_t piece = std::min<std::int64_t>({begin + by.prompt_piece, sentence + 1, of.prompt_end});
    if (piece - 1 < summary) may_end(piece, piece - 1);
  }
  if (closed_at >= of.size()) return std::nullopt;

  const std::int64_t split = std::min(summary, end);
  const std::int64_t own_begin = marked ? begin + 1 : begin;
  const std::int64_t own_end = std::min(thought_end, split);
  std::int64_t cue_begin = own_begin;
  std::int64_t cue_end = own_end;
  if (split < end) {
    const std::int64_t last = end == summary_end + 1 ? end - 1 : end;
    const bool wanted = !by.own_cue || cue_begin >= cue_end;
    if (split + 1 < last && wanted) cue_begin = split + 1, cue_end = last;
  }
  if (cue_begin >= cue_end) cue_begin = begin, cue_end = end;
  return segment{static_cast<index_t>(begin),     static_cast<index_t>(split),   static_cast<index_t>(end),
                 static_cast<index_t>(cue_begin), static_cast<index_t>(cue_end), static_cast<index_t>(closed_at)};
}

/// All segments of the text that are closed by its last token.
template <class Segmenter>
std::vector<segment> all_segments(const Segmenter& by, const text& of) {
  std::vector<segment> found;
  std::int64_t begin = 0;
  while (const auto next = begin < of.size() ? next_segment(by, of, begin) : std::nullopt) {
    found.push_back(*next);
    begin = next->end;
  }
  return found;
}

}  // namespace reference

// SPDX-License-Identifier: Apache-2.0
// L6. Which segments a conversation pins beside those of its pinned spans: the preamble before its first text, and the
// question of its last prompt. They follow from classes, prompts and segments alone, so that they are found again
// after a rollback, an erasure and a load.
#pragma once

#include <zoomr/policy/segment.hpp>
#include <zoomr/policy/zones.hpp>

#include <algorithm>  // std::max, std::min

namespace zoomr::inline v0::detail {

/// Tokens at the begin of a message before its text, at most: its mark, its role and the end of that line.
inline constexpr index_t message_header_tokens = 4;

/// The segments of a conversation's preamble: the first message, and of the second its first segment with text. Where
/// the second one does not begin within `most` tokens it is the first segment with text of the first one.
/// @param prompt  [tokens of the first prompt]  classes
/// @param most    the preamble's segments end within so many tokens
/// @cost  O(most)
inline token_range preamble_of(view<const token_class> prompt, view<const segment> segments, index_t most) {
  const index_t end = (std::min)(most, prompt.size());
  index_t messages = 0, text = 0;
  for (index_t t = 0; t < end && messages < 2; ++t) {
    if (!has(prompt[t], token_class::message)) continue;
    text = t + message_header_tokens;
    ++messages;
  }
  index_t last = 0;
  while (messages > 0 && last < segments.size() && segments[last].end <= end) {
    if (segments[last++].end > text) break;
  }
  return {0, last};
}

/// The segments that lie in a range of tokens, whole.
/// @cost  O(segments after it and in it)
inline token_range segments_in(view<const segment> segments, token_range tokens) {
  index_t last = segments.size();
  while (last > 0 && segments[last - 1].end > tokens.last) --last;
  index_t first = last;
  while (first > 0 && segments[first - 1].begin >= tokens.first) --first;
  return {first, last};
}

/// The tokens of a prompt from the first that a question span names to the last.
/// @param classes  by position
/// @param prompt   positions
/// @return         none: no token is in such a span
/// @cost  O(tokens of the prompt)
template <class Classes>
token_range named_question(const Classes& classes, token_range prompt) {
  const auto named = [&](index_t t) { return has(classes[t], token_class::question); };
  token_range found = prompt;
  while (found.first < found.last && !named(found.last - 1)) --found.last;
  while (found.first < found.last && !named(found.first)) ++found.first;
  return found;
}

/// True if a message begins among some tokens.
template <class Classes>
bool begins_message(const Classes& classes, token_range tokens) {
  for (index_t t = tokens.last; t > tokens.first; --t) {
    if (has(classes[t - 1], token_class::message)) return true;
  }
  return false;
}

/// The tokens of the newest question that spans name in a prompt which has ended.
/// @param later  [later prompts]  ascending
/// @return       none: there is none
/// @cost  O(tokens of these prompts)
template <class Classes>
token_range named_question(const Classes& classes, token_range first, view<const token_range> later) {
  token_range named;
  for (index_t i = later.size(); i > 0 && named.size() == 0; --i) named = named_question(classes, later[i - 1]);
  return named.size() > 0 ? named : named_question(classes, first);
}

/// The tokens of a conversation's question.
struct question_found {
  token_range tokens;  // none: it has no question
  bool named = false;  // by spans
};
/// What spans name; without that the last prompt, if a message begins in it.
/// @param first, later  prompts that have ended
/// @param most          of its tokens so many count, the last ones; without a name no more than zones::unnamed_question
template <class Classes>
question_found find_question(const Classes& classes, token_range first, view<const token_range> later, index_t most) {
  question_found found;
  found.tokens = named_question(classes, first, later);
  found.named = found.tokens.size() > 0;
  if (!found.named) found.tokens = later.size() > 0 ? later[later.size() - 1] : first;
  if (!found.named && !begins_message(classes, found.tokens)) return {};
  const index_t counted = found.named ? most : (std::min)(most, zones::unnamed_question);
  found.tokens.first = (std::max)(found.tokens.first, found.tokens.last - counted);
  return found;
}

/// Segments by id. One that is pinned has no details: all of it is summary tokens, which every query attends.
struct pinned_segments {
  index_t most_preamble = 0;  // zones::preamble
  index_t most_question = 0;  // zones::question
  token_range preamble;
  token_range question;
  token_range named;  // the tokens of the question, if spans name it

  pinned_segments() = default;
  pinned_segments(index_t preamble_tokens, index_t question_tokens)
      : most_preamble(preamble_tokens), most_question(question_tokens) {}

  /// Finds both.
  /// @param first, later  prompts that have ended
  void find(view<const token_class> classes, view<const segment> segments, token_range first,
            view<const token_range> later) {
    if (most_preamble > 0) preamble = preamble_of(classes.slice(first.first, first.last), segments, most_preamble);
    if (most_question == 0) return;
    const question_found found = find_question(classes, first, later, most_question);
    if (found.tokens.size() == 0) return;
    question = segments_in(segments, found.tokens);
    if (found.named) named = found.tokens;
  }
  bool has(index_t id) const {
    return (preamble.first <= id && id < preamble.last) || (question.first <= id && id < question.last);
  }
  friend bool operator==(const pinned_segments&, const pinned_segments&) = default;
};

}  // namespace zoomr::inline v0::detail

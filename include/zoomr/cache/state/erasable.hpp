// SPDX-License-Identifier: Apache-2.0
// L6. Which spans of a sequence may be erased or shifted (cache/host/editing/).
#pragma once

#include <zoomr/cache/state/unreachable_pages.hpp>
#include <zoomr/core/error.hpp>

#include <algorithm>  // std::find
#include <string>     // std::to_string

namespace zoomr::inline v0::detail {

/// Whether a span must go by erasing: not an empty one, nor one that ends the sequence, which is a rollback.
/// @throws precondition_error if the sequence has no such span
inline bool needs_erasing(const token_state& state, token_range erased) {
  ZOOMR_EXPECTS(erased.first >= 0 && erased.first <= erased.last && erased.last <= state.tokens(),
                "erase: the span must lie in 0 ... tokens(seq)");
  return erased.size() > 0 && erased.last < state.tokens();
}

/// Without the span a segment may close later, or be open still, that begins where pages were freed: its tokens were
/// not to be read any more, and then would be.
inline bool reopens_freed(const any_segmenter& segmenter, const token_state& state, token_range erased) {
  if (state.freed_pages == 0 || !segmenter.splits) return false;
  const index_t begin = state.next_begin(segmenter, state.segments_kept(erased)) / page_tokens;
  if (begin >= state.freed_pages) return false;
  const auto last = state.pages.begin() + state.freed_pages;
  return std::find(state.pages.begin() + begin, last, -1) != last;
}

/// Whether the window of the next token shows pages that were freed, if the last token's model position is `distance`
/// further, and theirs are not.
inline bool sees_freed(index_t window, const token_state& state, index_t distance) {
  if (state.freed_pages == 0) return false;
  const index_t seen = state.model_position(state.tokens() - 1) + distance + 2 - window;
  return state.moved.map().first_at(seen) < state.freed_pages * page_tokens;
}

/// Checks that model positions may differ from positions: what evictors observe under a bias by distance is counted by
/// positions.
/// @throws precondition_error if not
inline void expect_moves_heard(const any_policy& policy, const logit_rule& logits) {
  ZOOMR_EXPECTS(!policy.evict.observes || logits.alibi_slopes.size() == 0,
                "model positions cannot move where a policy evicts by attention under logits.alibi_slopes");
}

/// Checks that the model positions of a span may be `distance` further.
/// @throws precondition_error if model positions would descend; error(not_held) if a window would move back to pages
///         that were freed
inline void expect_shift(index_t window, const token_state& state, token_range span, index_t distance) {
  expect_shiftable(state.moved.map(), state.tokens(), span, distance);
  const index_t freed = state.freed_pages * page_tokens;
  const bool with_last = span.last == state.tokens(), with_freed = span.first < freed && freed <= span.last;
  const index_t nearer = (with_freed ? distance : 0) - (with_last ? distance : 0);
  if (window == 0 || !sees_freed(window, state, -nearer)) return;
  raise(errc::not_held, "shift: the tokens from " + std::to_string(span.first) + " to " + std::to_string(span.last) +
                            " cannot move: of those before " + std::to_string(freed) +
                            " pages were freed, and the window would move back there");
}

/// Checks that a span may go, of a sequence that has tokens after it.
/// @param window  logit_rule::window
/// @param gap     the tokens after it keep their model positions
/// @throws precondition_error if nothing would be left of a prompt that has ended; error(not_held) if each KV lane
///         holds tokens of its own there, or pages were freed that would be reached again
/// @cost   O(segments after the span, and pages that were freed)
inline void expect_erasable(const any_segmenter& segmenter, index_t window, const token_state& state,
                            token_range erased, bool gap) {
  ZOOMR_EXPECTS(state.in_first_prompt() || erased.first > 0 || erased.last < state.prompt_end,
                "erase: of a prompt that has ended at least one token must be left");
  const bool evicted = state.kept_each.committed > 0 && erased.first < state.compacted_end;
  const index_t held_from = state.freed_pages * page_tokens;
  const index_t left = state.tokens() - erased.size();
  const bool moves_back =
      window == 0
          ? left < state.least_tokens()
          : !gap && sees_freed(window, state, state.model_position(erased.first) - state.model_position(erased.last));
  const bool freed = state.freed_pages > 0 && (erased.first < held_from || moves_back);
  const bool reopened = window == 0 && !freed && reopens_freed(segmenter, state, erased);
  if (!evicted && !freed && !reopened) return;
  raise(errc::not_held,
        "erase: the tokens from " + std::to_string(erased.first) + " to " + std::to_string(erased.last) +
            (evicted ? " are not all there: of those before " + std::to_string(state.compacted_end) +
                           " each KV lane has kept some of its own"
                     : " cannot go: of those before " + std::to_string(held_from) + " pages were freed, and " +
                           (freed ? "the window would move back there"
                                  : "the segment that would be open then begins there")));
}

}  // namespace zoomr::inline v0::detail

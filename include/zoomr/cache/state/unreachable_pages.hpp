// SPDX-License-Identifier: Apache-2.0
// L6. Pages go back to the pool that no query can reach any more. Commit calls it where a layer has a sliding window,
// in the prompt too; where the policy's placement frees what is unreachable: details are never chosen then, so that
// a query reads its zones and summary tokens alone, and zones only move on; and where slots are dealt out to ranks, for
// those of others.
#pragma once

#include <zoomr/cache/planning/layout.hpp>
#include <zoomr/cache/tokens/token_state.hpp>
#include <zoomr/paging/page_pool.hpp>

#include <algorithm>  // std::lower_bound, std::max, std::min

namespace zoomr::inline v0::detail {

/// First position of the segment that is open, or was at any time when there were `tokens` tokens or more.
inline index_t open_begin_since(const any_segmenter& segmenter, const token_state& state, index_t tokens) {
  index_t begin = segmenter.open_begin(state.segmenting.data());
  for (auto s = state.segments.rbegin(); s != state.segments.rend() && s->closed_at >= tokens; ++s) begin = s->begin;
  return (std::min)(begin, tokens);
}

/// The back zone of no query begins before this, from now on or after any rollback that `rollback_depth` allows. Nor
/// will summary tokens be written there: only the open segment may still get some.
/// @param rollback_depth  config::rollback_depth(): the oldest state that can come back is that many tokens ago, or the
///                        prompt's end
/// @return                a position
inline index_t unreachable_end(const any_policy& policy, index_t rollback_depth, const token_state& state) {
  const index_t tokens = (std::max)(state.prompt_end, state.tokens() - rollback_depth);
  const index_t open_begin = policy.segment.splits
                                 ? open_begin_since(policy.segment, state, tokens)
                                 : (std::min)(policy.segment.open_begin(state.segmenting.data()), tokens);
  const index_t back = policy.zone.back(tokens, state.prompt_end, open_begin);
  return policy.segment.splits ? (std::min)(back, open_begin) : back;
}

/// visit(page) for each page in [first, last) that is not in the front zone and holds no summary token.
/// @param last  pages before it are before `unreachable_end`
/// @cost  O(pages), and a search in the table of segments
template <class Visit>
void each_unreachable_page(const any_policy& policy, const token_state& state, index_t first, index_t last,
                           Visit visit) {
  const index_t front = policy.zone.front(last * page_tokens, state.prompt_end);
  auto s = std::lower_bound(state.segments.begin(), state.segments.end(), first * page_tokens,
                            [](const segment& a, index_t position) { return a.end <= position; });
  for (; first < last; ++first) {
    const token_range page{first * page_tokens, (first + 1) * page_tokens};
    while (s != state.segments.end() && s->end <= page.first) ++s;
    bool reachable = page.first < front;
    for (auto in = s; in != state.segments.end() && in->begin < page.last; ++in) {
      reachable = reachable || (in->split < in->end && in->split < page.last && in->end > page.first);
    }
    if (!reachable) visit(first);
  }
}

/// Pages whose tokens a layer's window has passed, for all queries from `tokens` tokens on: the next token comes after
/// the last one.
inline index_t pages_passed(index_t window, const token_state& state, index_t tokens) {
  if (state.moved.plain() || tokens == 0 || window == 0) return zone_bounds::first_seen(window, tokens) / page_tokens;
  return state.moved.map().first_at(state.model_position(tokens - 1) + 2 - window) / page_tokens;
}

/// Gives back the pages that a layer's window has passed, as far as `rollback_depth` allows no query to come back.
/// @param stock  nullptr: they are an engine's, which takes them back by itself
/// @cost  O(1) for each token, over a sequence
inline void free_passed_pages(index_t window, index_t rollback_depth, token_state& state, page_stock* stock) {
  const index_t end = pages_passed(window, state, (std::max)(0, state.tokens() - rollback_depth));
  for (; state.freed_pages < end; ++state.freed_pages) {
    if (stock == nullptr) continue;
    index_t& id = state.pages[state.freed_pages];
    if (id >= 0) stock->give_back(id);
    id = -1;
  }
}

/// Gives back the pages of tokens that no query can reach any more: for policies that never choose details.
///
/// A page goes if it is before `unreachable_end`, not in the front zone, and holds no summary token. Its entry in the
/// sequence's table becomes -1, so that slots keep their pages. Each page is looked at once: `freed_pages` counts those
/// that were.
/// @cost  O(1) for each token, over a sequence
inline void free_unreachable_pages(const any_policy& policy, index_t rollback_depth, token_state& state,
                                   page_stock& stock) {
  if (state.in_prompt()) return;
  const index_t end = unreachable_end(policy, rollback_depth, state) / page_tokens;
  each_unreachable_page(policy, state, state.freed_pages, end, [&](index_t page) {
    index_t& id = state.pages[page];
    if (id >= 0) stock.give_back(id);
    id = -1;
  });
  state.freed_pages = (std::max)(state.freed_pages, end);
}

/// visit(page) for each page that a sequence has given back, in ascending order.
template <class Visit>
void each_freed_page(const any_policy& policy, index_t window, const token_state& state, Visit visit) {
  if (window == 0) return each_unreachable_page(policy, state, 0, state.freed_pages, visit);
  for (index_t page = 0; page < state.freed_pages; ++page) visit(page);
}

/// Pages of other ranks that are settled at `tokens` tokens: no later one is written there, and no summary is made of
/// keys there any more.
inline index_t settled_pages(const any_policy& policy, const token_state& state, index_t tokens) {
  return (policy.selects ? open_begin_since(policy.segment, state, tokens) : tokens) / page_tokens;
}

/// Some segment that begins in this rank's slots has tokens in a page.
/// @pre  slots are positions
inline bool ends_own_segment(const rank_tokens& dealt, const token_state& state, index_t page) {
  const index_t first = page * page_tokens, last = first + page_tokens;
  auto s = std::lower_bound(state.segments.begin(), state.segments.end(), first,
                            [](const segment& a, index_t position) { return a.end <= position; });
  for (; s != state.segments.end() && s->begin < last; ++s) {
    if (dealt.owns(s->begin)) return true;
  }
  return false;
}

/// Gives back the pages of other ranks that are settled, whatever `rollback_depth` brings back; where keys are scored
/// but for those that end this rank's segments.
/// @cost  O(1) for each token, over a sequence, or a search in the table of segments for each page
[[gnu::cold, gnu::noinline]] inline void free_dealt_pages(const any_policy& policy, const config& limits,
                                                          token_state& state, page_stock& stock) {
  const index_t end = settled_pages(policy, state, (std::max)(0, state.tokens() - limits.rollback_depth()));
  for (; state.dealt_pages < end; ++state.dealt_pages) {
    index_t& id = state.pages[state.dealt_pages];
    if (id < 0 || limits.token_ranks.owns(state.dealt_pages * page_tokens)) continue;
    if (policy.score.reads_keys && ends_own_segment(limits.token_ranks, state, state.dealt_pages)) continue;
    stock.give_back(id);
    id = -1;
  }
}

/// Gives back what can go after a commit, if anything can.
/// @param stock  as of free_passed_pages
inline void free_pages(const any_policy& policy, const config& limits, token_state& state, page_stock* stock) {
  if (!limits.token_ranks.alone()) free_dealt_pages(policy, limits, state, *stock);
  if (frees_passed_pages(policy, limits)) {
    free_passed_pages(limits.logits.window, limits.rollback_depth(), state, stock);
  } else if (frees_unreachable_pages(policy, limits)) {
    free_unreachable_pages(policy, limits.rollback_depth(), state, *stock);
  }
}

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L6. What the caches of host and device do alike with their sequences, on the host: check, open, take and give back
// pages, commit tokens. A state is a `token_state`, with whatever else its cache keeps.
#pragma once

#include <zoomr/cache/planning/plan.hpp>
#include <zoomr/cache/state/erasable.hpp>
#include <zoomr/cache/state/unreachable_pages.hpp>
#include <zoomr/core/table.hpp>

#include <algorithm>  // std::min
#include <string>     // std::to_string
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// @throws precondition_error if there can be no such cache
inline void expect_possible(const shape& model, const any_policy& policy, const config& limits) {
  for (const char* problem :
       {model.problem(), policy.problem, limits.problem(), limits.ranks.problem(model), limits.token_ranks.problem()}) {
    ZOOMR_EXPECTS(problem == nullptr, problem);
  }
  if (!limits.token_ranks.alone()) expect_dealt(policy, limits);
  for (const storage_scale& scale : {limits.key_scale, limits.value_scale}) {
    if (scale.each.data() != nullptr)
      expect_extents("config: a table of scales is", scale.each, {{model.layers, model.kv_heads}});
  }
  ZOOMR_EXPECTS(!limits.ranks.splits_kv_heads(model) ||
                    (!policy.evict.observes && (!policy.selects || policy.aggregate.per < scope::kv_head)),
                "config: some KV head's query heads are on several ranks, but the policy chooses, or evicts, by all of "
                "them: give each rank whole KV heads");
  const logit_rule& logits = limits.logits;
  if (logits.sinks.data() != nullptr) {
    expect_extents("config: logits.sinks are", logits.sinks, {{model.layers, model.heads}});
  }
  if (logits.alibi_slopes.data() != nullptr) {
    expect_extents("config: logits.alibi_slopes are", logits.alibi_slopes, {{model.heads}});
  }
  if (limits.voters.data() != nullptr) {
    expect_extents("config: voters are", limits.voters, {{model.layers, limits.ranks.all(model.heads)}});
  }
  expect_anchors(model, policy, limits.anchors);
  expect_donors(model, limits);
  ZOOMR_EXPECTS(!policy.selects || !policy.aggregate.asks_voters() || voter_table::count(limits.voters) > 0,
                "config: the policy asks heads that vote, so voters must have the weights of all heads, one of them "
                "above 0 at least");
  ZOOMR_EXPECTS(logits.window == 0 || !policy.evict.observes,
                "config: logits.window is for policies that evict nothing: a window gives its pages back by itself, so "
                "that presets::full serves such layers");
  ZOOMR_EXPECTS(!policy.placement.frees_unreachable || limits.min_sparse_context == 0,
                "config: min_sparse_context cannot be used with a placement that frees what is unreachable");
}

/// @throws precondition_error if no cache can be made although its size is known: without a table of classes segments
/// would not end where the policy means them to
inline void expect_classes(const any_policy& policy, const config& limits) {
  ZOOMR_EXPECTS(!policy.reads_classes || limits.classes.size() > 0,
                "config: classes is empty, but the policy's segments or choices depend on classes of tokens: give the "
                "token_class of each token id, or as many plain ones");
}

/// Opens the first sequence that is not open. It is empty, since `close` has forgotten the one before.
/// @throws error(capacity) if all are
template <class State>
sequence open_sequence(table<State>& states) {
  for (index_t id = 0; id < states.size(); ++id) {
    if (states[id].open) continue;
    states[id].open = true;
    return {id, states[id].generation};
  }
  detail::raise(errc::capacity, "all " + std::to_string(states.size()) +
                                    " sequences are open; close one or raise config.max_sequences");
}

/// A new sequence that `become(state, id)` makes; if that fails there is none, and its place is as it was.
/// @throws error(capacity) if all are open, and whatever `become` throws
template <class Core, class Become>
sequence open_sequence_as(Core& core, Become become) {
  const sequence handle = open_sequence(core.states);
  auto& state = core.states[handle.id];
  ZOOMR_TRY { become(state, handle.id); }
  ZOOMR_CATCH_ALL {
    core.clear(state);
    state.generation = handle.generation;  // the handle was given to no caller
    rethrow();
  }
  return handle;
}

/// The state that a handle names.
/// @throws precondition_error if it is not open, or its generation is that of a sequence that was closed since
template <class State>
State& expect_open(table<State>& states, sequence seq) {
  const index_t sequences = states.size();
  ZOOMR_EXPECTS(
      seq.id >= 0 && seq.id < sequences,
      "sequence " + std::to_string(seq.id) + " is not open: config.max_sequences is " + std::to_string(sequences));
  State& state = states[seq.id];
  const bool stale = seq.generation != state.generation;
  ZOOMR_EXPECTS(state.open && !stale, "sequence " + std::to_string(seq.id) + " is not open" +
                                          (stale ? ": it was closed, and another may have its id since" : ""));
  return state;
}

/// Checks that a step has items.
/// @throws precondition_error if it has none
inline void expect_some(view<const step_item> items) {
  ZOOMR_EXPECTS(items.size() > 0, "begin: a step needs at least one item");
}
/// Checks item `i` of a step against those before it.
/// @throws precondition_error if its sequence has come
/// @cost   O(i)
inline void expect_once(view<const step_item> items, index_t i) {
  for (index_t before = 0; before < i; ++before) {
    ZOOMR_EXPECTS(!(items[before].seq == items[i].seq), "begin: a sequence can take part in a step only once");
  }
}

/// Checks that the tokens of an item that come without model positions have some, which go on after the last one's.
/// @throws precondition_error if there are no more
inline void expect_positions_left(const token_state& state, const step_item& item, index_t most_of_draft) {
  const bool prompt = state.in_prompt() || begins_later_prompt(state, item);
  const index_t count = prompt ? item.ids.size() : (std::min)(item.ids.size(), most_of_draft);
  const std::int64_t last = std::int64_t{state.model_position(state.tokens())} + count - 1;
  ZOOMR_EXPECTS(last <= most_model_position, "begin: the last token of an item would have the model position " +
                                                 std::to_string(last) + ", the largest is " +
                                                 std::to_string(most_model_position));
}

/// Checks an item of a step against its sequence.
/// @throws precondition_error for no ids, an id that is negative or beyond config.classes, a prompt that has already
///         ended, or one that begins before that, or tokens for which there are no model positions
/// @cost   O(ids)
inline void expect_item(const token_state& stepped, const step_item& item, const config& limits) {
  ZOOMR_EXPECTS(item.ids.size() > 0, "begin: an item needs at least one token");
  const index_t classes = limits.classes.size();
  for (const token_id id : item.ids) {
    ZOOMR_EXPECTS(id >= 0, "begin: token ids cannot be negative, but one is " + std::to_string(id));
    ZOOMR_EXPECTS(classes == 0 || id < classes || id == no_class,
                  "begin: token id " + std::to_string(id) + " has no class: config.classes has " +
                      std::to_string(classes) + " entries, one for each id from 0 on");
  }
  const bool begins = begins_later_prompt(stepped, item);
  ZOOMR_EXPECTS(!begins || !stepped.in_prompt(),
                "begin: a prompt cannot begin before the one of this sequence has ended, with `prompt_ends`");
  ZOOMR_EXPECTS(stepped.in_prompt() || begins || !item.prompt_ends,
                "begin: the prompt of this sequence has already ended; another begins with `prompt_begins`");
  if (item.positions.size() == 0) expect_positions_left(stepped, item, limits.max_draft_tokens);
}

/// A KV lane evicts tokens of a sequence that is long enough.
inline bool evicts_by_attention(const any_policy& policy, index_t max_tokens) {
  return policy.evict.observes && policy.evict.kept(max_tokens) < max_tokens;
}
/// Tokens of a sequence that no eviction takes, at most, beside a first prompt that the zones pin: sinks, the last ones
/// that the evictor keeps in any case, a question, and those of pinned spans.
/// @param spans  of the next tokens, with numbers below `ids`
/// @cost  O(tokens)
[[gnu::cold, gnu::noinline]] inline std::int64_t never_evicted(const any_policy& policy, const token_state& state,
                                                               index_t max_tokens, view<const token_span> spans = {},
                                                               index_t ids = 0) {
  const any_zones& zone = policy.zone;
  if (zone.prompt && state.in_first_prompt()) return 0;
  std::int64_t count = std::int64_t{zone.sinks} + policy.evict.safe(max_tokens) + zone.question;
  const index_t front = (std::max)(zone.sinks, state.pinned(zone)), tokens = state.tokens();
  for (index_t t = front; t < tokens; ++t) count += has(state.classes[t], token_class::pinned) ? 1 : 0;
  for (const token_span& span : spans) {
    const index_t first = (std::max)(span.ids.first, front - tokens), last = (std::min)(span.ids.last, ids);
    if (span.role == span_role::pinned) count += (std::max)(0, last - first);
  }
  return count;
}

/// Every query attends everything: a question stays without being pinned.
inline bool attends_everything(const any_policy& policy, index_t max_tokens) {
  return !policy.selects && !evicts_by_attention(policy, max_tokens) &&
         policy.zone.back(max_tokens - 1, 0, max_tokens - 1) == 0;
}

/// Checks the spans of an item.
/// @throws precondition_error if they are empty, or not ascending and disjoint; if the policy cannot end a segment
///         where they do; for a question that is not of a prompt, or that the policy's zones have no room for though
///         they hide tokens; or if more is pinned than the evictor keeps
/// @cost   O(tokens) under a policy that evicts by attention, else O(spans)
[[gnu::cold, gnu::noinline]] inline void expect_spans(const any_policy& policy, const token_state& stepped,
                                                      const step_item& item, index_t max_tokens) {
  ZOOMR_EXPECTS(policy.segment.cuts,
                "begin: an item names spans, but the policy's segmenter has no `cut` to end segments where they do");
  index_t end = 0;
  for (const token_span& span : item.spans) {
    ZOOMR_EXPECTS(end <= span.ids.first && span.ids.first < span.ids.last,
                  "begin: a span has the ids [" + std::to_string(span.ids.first) + ", " +
                      std::to_string(span.ids.last) + ") of its item, wanted some from " + std::to_string(end) +
                      " on: spans are ascending and disjoint");
    end = span.ids.last;
    if (span.role == span_role::pinned) continue;
    ZOOMR_EXPECTS(stepped.in_prompt() || begins_later_prompt(stepped, item),
                  "begin: a span is a question, but the item is not part of a prompt");
    ZOOMR_EXPECTS(policy.zone.question > 0 || attends_everything(policy, max_tokens),
                  "begin: a span is a question, but the policy pins none: its zones' `question` is the most tokens "
                  "of one, and 0");
  }
  if (!evicts_by_attention(policy, max_tokens)) return;
  const std::int64_t stay = never_evicted(policy, stepped, max_tokens, item.spans, item.ids.size());
  const index_t kept = policy.evict.kept(max_tokens);
  ZOOMR_EXPECTS(stay <= kept, "begin: with the pinned spans of an item " + std::to_string(stay) +
                                  " tokens could never be evicted, but each KV lane keeps " + std::to_string(kept));
}

/// What is pinned of a sequence, as `any_kv_cache::pinned` says it.
[[gnu::cold, gnu::noinline]] inline std::vector<pinned_range> pinned_ranges(const any_policy& policy,
                                                                            const token_state& state) {
  std::vector<pinned_range> ranges;
  const auto add = [&](token_range tokens, span_role role) {  // segments of a prompt that is pinned are listed already
    const index_t end = ranges.empty() ? 0 : ranges.back().tokens.last;
    tokens.first = (std::max)(tokens.first, end);
    if (tokens.size() <= 0) return;
    if (!ranges.empty() && end == tokens.first && ranges.back().role == role) {
      ranges.back().tokens.last = tokens.last;
    } else {
      ranges.push_back({tokens, role});
    }
  };
  add({0, state.pinned(policy.zone)}, span_role::pinned);
  if (!state.marked) return ranges;
  const view<const token_class> classes(state.classes);
  if (policy.evict.observes && !policy.selects) {
    token_range question;
    if (policy.zone.question > 0 && !state.in_first_prompt()) {
      const token_range first{0, state.prompt_end};
      question = find_question(classes, first, state.ended_later_prompts(), policy.zone.question).tokens;
    }
    for (index_t t = 0; t < classes.size(); ++t) {
      const bool stays = has(classes[t], token_class::pinned), in_question = question.first <= t && t < question.last;
      if (stays || in_question) add({t, t + 1}, stays ? span_role::pinned : span_role::question);
    }
    return ranges;
  }
  for (index_t id = 0; id < state.segment_count(); ++id) {
    const segment& closed = state.segments[id];
    const token_range preamble = state.pins.preamble;
    const bool in_preamble = preamble.first <= id && id < preamble.last;
    const bool stays = in_preamble || has(classes[closed.begin], token_class::pinned);
    if (stays || state.pins.has(id)) add({closed.begin, closed.end}, stays ? span_role::pinned : span_role::question);
  }
  return ranges;
}

/// Checks that a later prompt may begin with an item: all that its tokens attend to is there.
/// @throws precondition_error if not
inline void expect_beginning(const any_policy& policy, const config& limits, const token_state& state,
                             const step_item& item) {
  ZOOMR_EXPECTS(!begins_later_prompt(state, item) || !frees_unreachable_pages(policy, limits),
                "begin: a later prompt attends to everything, but the policy's placement frees what no query reaches: "
                "pass it token by token, or in drafts");
}

/// Checks the model positions that an engine gives to the tokens of an item.
/// @throws precondition_error if they descend, or the window would move back to pages that were freed
[[gnu::noinline]] inline void expect_positions(const any_policy& policy, const logit_rule& logits,
                                               const token_state& state, const step_item& item) {
  const index_t count = item.ids.size();
  ZOOMR_EXPECTS(item.positions.size() == count, "begin: an item has " + std::to_string(count) + " ids and " +
                                                    std::to_string(item.positions.size()) + " positions");
  index_t least = state.tokens() > 0 ? state.model_position(state.tokens() - 1) : 0;
  for (index_t t = 0; t < count; ++t) {
    const index_t position = item.positions[t];
    if (position != state.model_position(state.tokens() + t)) expect_moves_heard(policy, logits);
    ZOOMR_EXPECTS(position >= least && position <= most_model_position,
                  "begin: a token has the model position " + std::to_string(position) + ", wanted " +
                      std::to_string(least) + " to " + std::to_string(most_model_position));
    least = position;
  }
  const index_t seen = state.moved.map().first_at(item.positions[0] + 1 - logits.window);
  ZOOMR_EXPECTS(logits.window == 0 || seen >= state.freed_pages * page_tokens,
                "begin: at the model position " + std::to_string(item.positions[0]) +
                    " the window shows pages that it had passed: with a window positions ascend from step to step");
}

/// Checks that at a step which ends a prompt all queries that eviction observes then are remembered, or come with it.
/// They are not if a chunk was appended without `attend` or `observe`, or a rollback went before what is remembered.
/// @throws precondition_error if some are missing
inline void expect_observed(const any_policy& policy, const token_state& state, const step_item& item) {
  if (!policy.evict.observes || policy.evict.accumulates || !item.prompt_ends) return;
  const bool begins = begins_later_prompt(state, item);
  if (policy.zone.prompt && state.in_first_prompt() && !begins) return;
  const auto prompt =
      static_cast<index_t>(std::min<std::int64_t>(std::int64_t{state.tokens()} + item.ids.size(), unlimited));
  if (kept_after_prompt(policy, state, prompt) >= state.slot_end(prompt)) return;
  const index_t from = observed_from(policy, begins ? state.tokens() : state.last_prompt_begin(), prompt);
  const index_t known = (std::min)(state.queries_from, state.tokens());
  ZOOMR_EXPECTS(known <= from || state.tokens() <= from,
                "begin: at the end of the prompt eviction observes the queries from token " + std::to_string(from) +
                    " on, but those before token " + std::to_string(known) +
                    " are not known any more: attend or observe each chunk that holds some, or roll back to token " +
                    std::to_string(from) + " and pass the rest again");
}

/// Why a rollback is too deep for heads that vote.
[[gnu::cold, gnu::noinline]] inline std::string missing_queries(const token_state& state, const config& limits) {
  const index_t least = (std::min)(state.rollback_floor, state.least_with_queries());
  return "heads vote by the queries of the last tokens, and those before token " + std::to_string(state.queries_from) +
         " are not remembered; at " + std::to_string(least) + " tokens or more, and at 0, none is missed " +
         "(config.rollback_tokens is " + std::to_string(limits.rollback_tokens) + ")";
}

/// Checks that a sequence can be rolled back to `to` tokens.
///
/// It cannot go into the first prompt if tokens of it were evicted or pages freed; nor before the last eviction or
/// adding up of attention, unless it becomes empty with nothing evicted. To a generated token it cannot go before the
/// log of choices, nor, if there are query records or pages are freed, before `rollback_floor`. Where heads vote by the
/// last queries it cannot go there in a prompt either, unless all of these are remembered, or to nothing. Where a
/// layer's window frees pages it can go, in the prompt too, as far as the window finds its pages, or to nothing; where
/// other ranks' pages are freed, as far as these are settled then. In all other cases any depth will do.
/// @param has_records  queries are remembered, for the last `rollback_tokens` tokens
/// @param has_choice   the log still has what was active then
/// @throws error(rollback_depth) if not
inline void expect_rollback(const any_policy& policy, const token_state& state, index_t to, const config& limits,
                            bool has_records, bool has_choice) {
  const index_t window = limits.logits.window;
  const bool unsettled = state.dealt_pages > 0 && settled_pages(policy, state, to) < state.dealt_pages;
  const bool passed = to > 0 && (unsettled || (window > 0 && pages_passed(window, state, to) < state.freed_pages));
  const bool generated = !state.in_first_prompt() && to >= state.prompt_end && !state.inside_later_prompt(to);
  const bool deep = to < state.rollback_floor && (has_records || frees_unreachable_pages(policy, limits));
  const bool freed = window == 0 && state.freed_pages > 0;
  const bool evicted = to < state.prompt_end && (state.kept_each.committed > 0 || freed);
  const bool observed = to < state.observed_end && (to > 0 || state.kept_each.committed > 0);
  const bool misses = state.loses_queries(to);
  if (!evicted && !observed && !passed && !misses && !(generated && (deep || !has_choice))) return;
  const std::string reason = evicted ? "the policy has evicted tokens of the prompt"
                             : observed
                                 ? "at " + std::to_string(state.observed_end) +
                                       " tokens the policy has evicted some, or added up the attention that they got"
                             : misses ? missing_queries(state, limits)
                                      : "config.rollback_tokens is " + std::to_string(limits.rollback_tokens) +
                                            ", counted from the longest that the sequence ever was";
  detail::raise(errc::rollback_depth, "cannot roll back from " + std::to_string(state.tokens()) + " to " +
                                          std::to_string(to) + " tokens: " + reason);
}

/// Takes the pages that a step needs, for all tokens of all items, as if all were accepted; those of the others
/// go back when the step ends.
/// @param copies  pages that `copy` will take
/// @param copy    copy()  takes and fills them: pages that sequences share, and the step writes
/// @throws error(capacity) if they are not there, and what `copy` throws; nothing has changed
template <class Item, class State, class Copy>
void take_pages(page_stock& stock, const std::vector<Item>& items, table<State>& states, index_t copies, Copy copy) {
  const auto missing = [&](const planned_item& item) {
    const State& state = states[item.seq];
    return pages_for(state.slot_end(item.first + item.tokens)) - state.pages.size();
  };
  std::int64_t needed = copies;
  for (const planned_item& item : items) needed += missing(item);
  if (needed > stock.free_pages()) {
    detail::raise(errc::capacity, "the step needs " + std::to_string(needed) + " pages of " +
                                      std::to_string(page_tokens) + " tokens, " + std::to_string(stock.free_pages()) +
                                      " are free; raise config.pool_tokens");
  }
  copy();
  for (const planned_item& item : items) {
    auto& pages = states[item.seq].pages;
    for (index_t count = missing(item); count > 0; --count) pages.push_back(stock.take());
  }
}

/// One more table names these pages; -1 stands for one that was given back.
inline void share_pages(const table<index_t>& pages, page_stock& stock) {
  for (const index_t page : pages) {
    if (page >= 0) stock.share(page);
  }
}

/// Gives back the pages after the first `slots` slots; -1 stands for one that was given back before.
inline void trim_pages(table<index_t>& pages, index_t slots, page_stock& stock) {
  const index_t needed = pages_for(slots);
  while (pages.size() > needed) {
    if (pages.back() >= 0) stock.give_back(pages.back());
    pages.pop_back();
  }
}

/// Commits tokens to segments and segmenter. The table has room for the segments, since `plan` has counted them.
/// @param planned  [tokens that are accepted]
/// @param item     where a prompt begins or ends
inline void commit_tokens(const any_segmenter& segmenter, token_state& state, const planned_item& item,
                          view<const planned_token> planned, index_t rollback_depth) {
  if (item.prompt_begins) state.begin_later_prompt();
  for (index_t t = 0; t < planned.size(); ++t) {
    state.add(segmenter, planned[t].classes, item.prompt_ends && t + 1 == planned.size());
  }
  state.rollback_floor = (std::max)(state.rollback_floor, state.tokens() - rollback_depth);
}

}  // namespace zoomr::inline v0::detail

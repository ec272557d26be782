// SPDX-License-Identifier: Apache-2.0
// L6. What a cache owns: the policy behind its interface, the pages, the state of each sequence, and working memory
// that all sequences share. Attending, choosing, eviction and commit are functions over it.
//
// All arrays are allocated by the constructor, and `bytes` counts them beforehand: whoever adds one here adds it to
// `core_sizing` too. There is one step at a time, so that working memory is never shared by two. What must
// outlive a layer is kept for each token of the step or for each sequence; the rest is written again by each call.
#pragma once

#include <zoomr/cache/host/attending/state_exchange.hpp>
#include <zoomr/cache/host/core_sizing.hpp>
#include <zoomr/cache/state/unreachable_pages.hpp>
#include <zoomr/cache/trace.hpp>
#include <zoomr/core/table.hpp>
#include <zoomr/paging/resident_keys.hpp>
#include <zoomr/paging/stored_rows.hpp>

#include <algorithm>  // std::max, std::min
#include <memory>     // std::unique_ptr
#include <string>     // std::string
#include <utility>    // std::move
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// The memory of a cache, whatever its policy. Not a public type: any_kv_cache and step share one.
/// @tparam Pool  page_pool, tiered_pool or engine_pool
template <class Pool>
struct cache_core {
  using kv_lane_type = typename Pool::kv_lane_type;
  using number = typename Pool::number;
  using sizing = core_sizing<Pool>;

  std::unique_ptr<const any_policy> owned;
  const any_policy& policy;
  config limits;
  layout sizes;
  Pool pool;
  resident_keys<number> keys;              // of `layout::key_lanes`
  table<sequence_state> states;            // [max_sequences]
  std::vector<chooser> choosers;           // [threads], or one
  table<thread_memory<number>> of_thread;  // [threads]
  std::vector<head_counts> counts;         // [max_draft_tokens, heads]  of one item in one layer
  donor_table donors;                      // layers that store, and those that attend what these have stored
  anchor_table anchors;                    // layers that choose, and those that read what these have chosen
  segment_summarizer summaries;
  eviction_room room;
  step_plan<planned_item> step;       // in progress
  query_memory draft_queries;         // [step's tokens after the prompt]  as after each token
  query_memory eviction_queries;      // [step's tokens after the prompt]  queries that are observed or chosen by later
  query_memory prompt_queries;        // [step's prompt tokens]  the same, of the last ones of each prompt's chunk
  query_memory choice_queries;        // [max_sequences]  queries of the token that makes a choice
  choice_exchange exchange;           // with other ranks, of choices
  state_exchange rank_states;         // the same of attention
  voter_table voters;                 // of a choice from several queries
  query_memory turned_queries;        // of a question that scores from the prompt's end: by position
  std::vector<float> frequencies;     // by which they are turned: config.rotary
  table<selection> pending;           // [max_sequences]  choices not yet committed
  table<selection> draft_choices;     // [step's tokens after the prompt]  those that later layers read
  stretch_sums heads;                 // [max_batched_tokens, heads]  of the tokens that attend together
  cut_states cut;                     // of tokens whose stretches several threads share
  detail::half_queries halves;        // rows of the layer that is attended
  transformed_rows<number> hadamard;  // the same, where rows are stored transformed
  table<std::string> failures;        // [max_sequences]  why an item has failed
  std::vector<index_t> replaced;      // [pages of the longest sequence]  of a sequence that loses tokens
  attention_trace* trace = nullptr;   // the caller's, if attention is to be recorded

  /// @pre     expect_possible(model, *pointer, settings) has let them pass
  /// @throws  error(capacity) or std::bad_alloc without memory; error(storage) without the file of a tiered pool
  cache_core(const shape& model, std::unique_ptr<const any_policy> pointer, const config& settings)
      : owned(std::move(pointer)),
        policy(*owned),
        limits(settings),
        sizes(sizing::sized(model, policy, settings)),
        pool(sizing::make_pool(sizes, policy, settings)),
        keys(sizes.key_lanes, model.head_dim, sizes.pool_pages(), sizes.rounded_keys),
        counts(sizing::counts_size(model, settings)),
        donors(model, settings.donors),
        anchors(model, policy, settings.anchors),
        summaries(sizes, policy, settings, donors, anchors),
        room(sizes, settings),
        step(model, settings, policy.segment),
        draft_queries(model, sizes.query_parts, layout::draft_records(settings)),
        eviction_queries(sizes.asked_heads(), sizes.notes_queries() ? 1 : 0, layout::draft_records(settings)),
        prompt_queries(sizes.asked_heads(), 1, sizes.pending_queries(settings)),
        choice_queries(model, layout::asking_parts(policy), settings.max_sequences),
        exchange(model, policy, settings, sizes.most_segments,
                 std::int64_t{sizes.heard + sizes.question} * sizes.voters),
        rank_states(model, policy, settings),
        voters(model, policy.aggregate.asks_voters() ? settings.own_voters(model.heads) : view<const float, 2>{},
               sizes.voters > 0 ? sizes.most_segments : 0,
               {settings.voters_unsure, {settings.voters_none, settings.voters_none_slope}}, settings.voters),
        turned_queries(sizes.asked_heads(), sizes.question > 0 ? 1 : 0, (std::max)(1, sizes.question)),
        heads(model, settings.max_batched_tokens, settings.max_tokens),
        cut(sizes, settings, sizing::most_threads(settings)),
        halves(model, settings),
        hadamard(model, settings, sizing::transforms(settings)),
        failures(settings.max_sequences) {
    if (model.values_in_keys) limits.value_scale = limits.key_scale;
    const view<const float> given_frequencies = settings.rotary.frequencies;
    frequencies.assign(given_frequencies.begin(), given_frequencies.end());
    limits.rotary.frequencies = view<const float>(frequencies);
    limits.voters = {};  // the caller's tables may go; `voters` and `exchange` have what is needed of them
    limits.ranks = {};
    limits.anchors = {};
    limits.donors = {};
    replaced.reserve(static_cast<std::size_t>(Pool::owns_pages ? sizes.table_pages : 0));
    const index_t threads = sizing::most_threads(settings);
    const auto most = static_cast<std::size_t>(chooser::most_at_once(policy, threads));
    choosers.reserve(most);
    while (choosers.size() < most) choosers.emplace_back(sizes, policy, settings.logits.of_scores(model.head_dim));
    if (exchange.divides_heads()) choosers.front().exchange = &exchange;  // its choices are made one after the other
    of_thread.reserve(threads);
    while (of_thread.size() < threads) {
      of_thread.emplace_back(sizes, policy, sizing::observed_tokens(sizes, settings));
    }
    states.reserve(settings.max_sequences);
    pending.reserve(settings.max_sequences);
    draft_choices.reserve(sizes.draft_choices);
    while (draft_choices.size() < sizes.draft_choices) {
      draft_choices.emplace_back(sizes.selection_rows, sizes.most_segments, sizes.rounded_cells > 0);
    }
    room.take_spare(sizes, pool);
    for (index_t s = 0; s < settings.max_sequences; ++s) {
      states.emplace_back(sizes, policy, settings);
      pending.emplace_back(policy.persists() ? sizes.selection_rows : 0, sizes.most_segments, sizes.rounded_cells > 0);
    }
  }

  /// Within ZOOMR_CATCH: an error(storage) fails this item alone. Its sentence is kept for `step::failure`, and the
  /// other items of the step go on. Any other error is thrown on.
  void keep_failure(planned_item& item, const error& cause) {
    if (!Pool::may_fail || cause.code() != errc::storage) rethrow();
    failures[item.seq] = cause.what();
    item.failed = true;
  }
  /// Does part of an item's work, unless it has failed before.
  /// @return  false if it has failed
  template <class Work>
  bool may_fail(planned_item& item, Work work) {
    if constexpr (Pool::may_fail) {
      if (item.failed) return false;
      ZOOMR_TRY { work(); }
      ZOOMR_CATCH(const error& cause) { keep_failure(item, cause); }
      return !item.failed;
    } else {
      work();
      return true;
    }
  }

  /// Who may work on what reads so many keys or values of each KV head: the caller's threads, if that is worth waking
  /// them. What is recorded is recorded in order, by one.
  executor threads_for(std::int64_t rows) const {
    const bool few = rows * sizes.model.kv_heads * sizes.model.head_dim < limits.threads.worth();
    const bool alone = few || Pool::may_fail || trace != nullptr || choosers.front().trace != nullptr;
    return alone ? executor{} : limits.threads.present();
  }

  sequence_state& state_of(const planned_item& item) { return states[item.seq]; }

  /// One KV lane of a sequence. It is a view of `state.pages`, valid until these change. Over tiers each `key(slot)`
  /// may throw error(storage), and a pointer is valid only until four other blocks have been requested.
  kv_lane_type kv_lane(const sequence_state& state, index_t layer, index_t kv_head) {
    return pool.kv_lane(donors.stored(layer), kv_head, view<const index_t>(state.pages));
  }
  /// The number of a KV lane: among those that are stored.
  index_t lane_of(index_t layer, index_t kv_head) const {
    return donors.stored(layer) * sizes.model.kv_heads + kv_head;
  }

  /// Where a KV lane's keys are kept beside the pages, in `keys`; -1 if they are not.
  index_t kept_lane(index_t layer, index_t kv_head) const {
    return sizes.key_lanes > 0 ? voters.place_of(layer, kv_head) : -1;
  }
  /// Keeps a key that was written to a page beside it too, if a voter's keys are kept there.
  /// @param pages  the page table in which `slot` is
  /// @param key    as it is stored there
  void keep_key(index_t layer, index_t kv_head, view<const index_t> pages, index_t slot, const number* key) {
    const index_t lane = kept_lane(layer, kv_head);
    if (lane >= 0) keys.keep(lane, pages, slot, key);
  }

  /// What the model does to the logits of some heads of one KV head, of tokens from `position` on.
  /// @param query_heads  of the layer, of one KV head
  model_logits logits_of(const sequence_state& state, index_t layer, token_range query_heads, index_t position) const {
    const logit_rule& rule = limits.logits;
    model_logits hook{{rule.soft_cap, {}, {}}, query_heads.size(), position};
    if (rule.alibi_slopes.size() == 0) return hook;
    hook.lane.slopes = rule.alibi_slopes.slice(query_heads.first, query_heads.last);
    hook.lane.slots = state.slots_of(lane_of(layer, query_heads.first / sizes.model.group()));
    hook.positions = state.moved.map();
    return hook;
  }

  /// Calls `work` with the hook of such logits: `plain_logits` where nothing is done to them, so that kernels without a
  /// hook serve models that need none.
  template <class Work>
  void with_hook(const sequence_state& state, index_t layer, token_range query_heads, index_t position,
                 Work work) const {
    if (limits.logits.plain()) return work(plain_logits{});
    work(logits_of(state, layer, query_heads, position));
  }

  /// The zones of a query at `position`, in positions. While the first prompt is still coming it counts as ending with
  /// this token.
  /// @param open_begin  first position of the open segment, as committed
  zone_bounds zone_at(const sequence_state& state, index_t position, index_t open_begin) const {
    const index_t prompt_end = state.in_first_prompt() ? position + 1 : state.prompt_end;
    if (state.moved.plain()) return zones_of_query(policy.zone, limits.logits.window, position, prompt_end, open_begin);
    return zones_of_query(policy.zone, 0, position, prompt_end, open_begin).seen_from(window_of(state).first(position));
  }
  zone_bounds zone_of(const sequence_state& state, const planned_item& item, index_t position) const {
    return zone_in(item, position, [&](index_t at) { return zone_at(state, at, item.open_begin); });
  }
  /// What of a sequence the layers' sliding window shows.
  seen_window window_of(const sequence_state& state) const { return {limits.logits.window, state.moved.map()}; }

  /// Gives back the pages after the committed tokens; those of an engine are forgotten.
  void trim_pages(sequence_state& state) {
    if constexpr (Pool::owns_pages) {
      detail::trim_pages(state.pages, state.slots(), pool);
    } else {
      trim_table(limits.engine, state);
    }
  }

  /// Forgets what a step has left after the committed tokens, whether it was committed or dropped.
  void forget_pending(sequence_state& state) {
    state.kept_each.pending = 0;
    state.moved.cut(state.tokens());
    trim_pages(state);
  }

  /// Forgets a sequence that is closed.
  void clear(sequence_state& closing) {
    closing.forget_everything(policy.segment);
    trim_pages(closing);
  }

  /// Checks that what was at `to` tokens can still be restored.
  /// @throws error(rollback_depth) if not
  void expect_known(const sequence_state& state, index_t to) const {
    if (state.questions.loses(to)) {
      raise(errc::rollback_depth, "cannot roll back from " + std::to_string(state.tokens()) + " to " +
                                      std::to_string(to) +
                                      " tokens: the queries of a question before it are no longer "
                                      "remembered; config.rollback_tokens is " +
                                      std::to_string(limits.rollback_tokens));
    }
    expect_rollback(policy, state, to, limits, sizes.has_records(), !policy.persists() || state.log.reaches(to));
  }

  /// Everything as it was when `to` tokens were committed.
  ///
  /// Summaries, query sums and keys need no undoing: each is found by segment, position or slot, and what is beyond
  /// the last one left is overwritten. Evictions are not undone.
  /// @throws error(rollback_depth) if it is no longer kept; nothing has changed
  /// @cost  feeds the tokens since the last close that is left to the segmenter, and reads one choice from the log
  void roll_back(sequence_state& state, index_t to) {
    expect_known(state, to);
    if (to < state.prompt_end) {  // nothing has been chosen or summed
      state.log.clear();
      state.masses.forget();
      state.reopen_prompt(to, limits.rollback_depth());
    }
    state.reopen_later_prompt(to, limits.rollback_depth());
    state.go_back(policy.segment, to, policy.evict.spacing());
    if (policy.persists()) {
      state.log.restore(to, state.active_selection, level::summary);
    } else {
      state.active_selection.clear();
    }
    trim_pages(state);
  }

  /// Bytes of one sequence at its present length; working memory belongs to none.
  memory_use bytes_in_use(const sequence_state& state) const {
    const byte_count pages = state.held_pages();
    memory_use use;
    use.details = pages * pool.bytes_of_page();
    use.summaries =
        sizes.summary_bytes(state.segment_count()) +
        pages * resident_keys<number>::page_bytes(sizes.key_lanes, sizes.model.head_dim, sizes.rounded_keys);
    use.metadata = state.metadata_bytes(sizes);
    return use;
  }
};

}  // namespace zoomr::inline v0::detail

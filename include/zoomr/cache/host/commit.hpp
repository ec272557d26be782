// SPDX-License-Identifier: Apache-2.0
// L6. The ends of a pass and of a step, for one sequence.
//
// The order of a commit: a choice for all layers that the first pass has not made; tokens and segments; eviction, since
// it decides which slots there are; summaries, from the keys that are left; query records; the choice after a prompt,
// or of an item that was passed whole, from these summaries; the active selection and its log; pages. Up to the
// summaries it may fail over tiers: that is `prepare_commit`, which `undo_commit` takes back. After them nothing can:
// that is `finish_commit`.
#pragma once

#include <zoomr/cache/host/choosing/due_choices.hpp>
#include <zoomr/cache/host/eviction/token_eviction.hpp>

#include <algorithm>  // std::max
#include <string>     // std::to_string
#include <utility>    // std::swap

namespace zoomr::inline v0::detail {

/// KV lanes of which each choice reads all keys in their pages: none where those are kept beside them.
template <class Pool>
index_t lanes_with_keys(const cache_core<Pool>& core) {
  if (!core.policy.selects || !core.policy.score.reads_keys || core.sizes.key_lanes > 0) return 0;
  return core.sizes.heard > 0 ? core.voters.kv_lanes().size() : core.sizes.index_lanes;
}

/// Adds the pass that has just ended to the sequence's statistics. Where details are on the host, those of the token
/// that has read most count as the device's: keys and values of the slots that it has read, over all KV lanes; and
/// all keys of KV lanes whose keys are scored.
template <class Pool>
void count_pass(cache_core<Pool>& core, planned_item& item) {
  if (item.prompt) return;
  auto& state = core.state_of(item);
  ++state.stats.passes;
  std::int64_t most = 0;
  for (index_t t = 0; t < item.tokens; ++t) {
    std::int64_t& read = core.step.token(item, item.first + t).kv_lane_tokens;
    most = (std::max)(most, read);
    read = 0;
  }
  memory_use use = core.bytes_in_use(state);
  if (core.policy.placement.details_on_host)
    use.details = stored_size<typename Pool::number>(
                      most * (core.sizes.model.head_dim + core.sizes.model.stored_value_width()) +
                      std::int64_t{lanes_with_keys(core)} * state.slots() * core.sizes.model.head_dim) *
                  static_cast<byte_count>(sizeof(typename Pool::number));
  state.stats.device_peak = (std::max)(state.stats.device_peak, use.total());
}

/// Lets eviction do what the tokens just committed have made due.
/// @pre    `commit_tokens` came before: positions and slots are those after the step
/// @throws error(storage) if pages do not come; `core.room` can undo it
/// @return true if the KV lanes hold other tokens than before
template <class Pool>
bool evict(cache_core<Pool>& core, const planned_item& item, index_t accepted) {
  if (!core.policy.evict.observes) return false;
  auto& state = core.state_of(item);
  if (item.prompt && state.later_prompts.empty()) {
    evict_after_prefill(core, state);
    return item.prompt_ends;
  }
  if (item.prompt) return evict_after_later_prompt(core, state, item);
  for (index_t t = (std::max)(0, accepted - core.sizes.noted); t < accepted; ++t) {
    state.noted.copy_from(core.eviction_queries, item.draft + t, item.first + t);
  }
  return evicts_after(core.policy, core.limits, state.evictions_begin(), item.first + accepted - 1) &&
         evict_while_decoding(core, state);
}

/// Makes the first `count` tokens of an item part of tokens, segments and segmenter. Over tiers, pages that they have
/// filled begin to be written to the file.
/// @return  the number of segments before
template <class Pool>
index_t commit_tokens(cache_core<Pool>& core, sequence_state& state, const planned_item& item, index_t count) {
  const index_t segments_before = state.segment_count();
  commit_tokens(core.policy.segment, state, item, core.step.first_tokens(item, count), core.limits.rollback_depth());
  if constexpr (Pool::may_fail) {
    for (index_t page = state.slot_end(item.first) / page_tokens; (page + 1) * page_tokens <= state.slots(); ++page) {
      core.pool.write_back(state.pages[static_cast<std::size_t>(page)]);
    }
  }
  return segments_before;
}

/// Makes the choice for all layers that is due and that no pass has made.
template <class Pool>
void choose_before_commit(cache_core<Pool>& core, planned_item& item, index_t accepted) {
  core.state_of(item).masses.forget_from(item.first);
  if (accepted == item.tokens) choose_due(core, item, choice_time::last_pass);
}

/// All choices of a step that is committed, before anything of it is. Where some are made later, all ranks are known to
/// be here.
/// @pre  core.exchange.used()
/// @param accepted  [items]
/// @throws error(ranks)  nothing has changed
template <class Pool>
[[gnu::cold, gnu::noinline]] void choose_with_ranks(cache_core<Pool>& core, view<const index_t> accepted) {
  bool waits = false;
  number_hash about;
  for (index_t i = 0; i < accepted.size(); ++i) {
    planned_item& item = core.step.items[static_cast<std::size_t>(i)];
    if (accepted[i] == 0) continue;
    choose_before_commit(core, item, accepted[i]);
    waits = waits || waits_for_commit(core, item, accepted[i]);
    about.add(std::int64_t{item.first}), about.add(std::int64_t{accepted[i]});
  }
  if (waits) core.exchange.meet(about.value());
}

/// After a commit in the middle of which other ranks were gone.
/// @param failure  `choice_exchange::take_failure`; empty: they were not
[[gnu::cold, gnu::noinline]] inline void expect_no_failure(const std::string& failure) {
  if (failure.empty()) return;
  raise(errc::ranks, "the step is committed, and what follows reads everything until the next choice: " +
                         failure.substr(error::prefix.size()));
}

/// Makes the first `accepted` tokens of an item part of its sequence, as far as pages may fail to come. Nothing changes
/// but tokens and segments, what `core.room` keeps a copy of, summaries that can be made again, and places that hold
/// nothing yet. `finish_commit` or `undo_commit` follows before another item's turn.
template <class Pool>
void prepare_commit(cache_core<Pool>& core, planned_item& item, index_t accepted) {
  auto& state = core.state_of(item);
  item.floor_before = state.rollback_floor;
  item.queries_before = state.queries_from;
  count_pass(core, item);
  if (accepted == 0) return;
  if (!core.exchange.used()) choose_before_commit(core, item, accepted);
  const index_t segments_before = commit_tokens(core, state, item, accepted);
  const bool other_tokens = evict(core, item, accepted);
  state.stale_summaries = other_tokens && !state.in_first_prompt();  // until it is certain that they stay
  if (!core.policy.evict.observes || !state.in_first_prompt())
    core.summaries.make(core.pool, state, other_tokens ? 0 : segments_before);
}

/// The rest of a commit: nothing fails.
template <class Pool>
void finish_commit(cache_core<Pool>& core, planned_item& item, index_t accepted) {
  if (accepted == 0) return;
  auto& state = core.state_of(item);
  state.stale_summaries = false;
  for (index_t t = (std::max)(0, accepted - core.sizes.records); t < accepted && !item.prompt; ++t) {
    state.queries.copy_from(core.draft_queries, item.draft + t, item.first + t);
  }
  commit_queries(core, state, item, accepted);
  const bool waited = choose_waiting(core, item, accepted);
  const bool chooses = waited || (item.chooses && accepted == item.tokens);
  if (chooses && item.chosen) {
    pass_on_rows(core, core.pending[static_cast<std::size_t>(item.seq)]);
    std::swap(state.active_selection, core.pending[static_cast<std::size_t>(item.seq)]);
    state.log.push(item.first + accepted - 1, state.active_selection, level::summary);
  }
  if (chooses) prefetch_chosen(core, item);
  free_pages(core.policy, core.limits, state, Pool::owns_pages ? &core.pool : nullptr);
  core.room.finish(core.pool);
  (item.prompt ? state.stats.prompt_tokens : state.stats.tokens) += accepted;
}

/// Makes the summaries again that a commit has made before it failed. They get the bits that they had: since tokens
/// were evicted for the last time all of what they are made from is there.
/// @throws error(storage) if pages do not come
template <class Pool>
void renew_summaries(cache_core<Pool>& core, sequence_state& state) {
  if (!state.stale_summaries) return;
  core.summaries.make(core.pool, state, 0);
  state.stale_summaries = false;
}
/// The same before a step; `i` is the number of the item.
template <class Pool>
void renew_summaries(cache_core<Pool>& core, const step_item& item, index_t i) {
  ZOOMR_TRY { renew_summaries(core, core.states[static_cast<std::size_t>(item.seq.id)]); }
  ZOOMR_CATCH(const error& cause) {
    raise(cause.code(), "begin: item " + std::to_string(i) +
                            ": after a commit that failed its summaries cannot be made again: " +
                            (cause.what() + error::prefix.size()));
  }
}

/// Takes `prepare_commit` back, also where it has failed in the middle: the sequence is what it was, but for its
/// statistics. Summaries that were made from other tokens are made again by the sequence's next step,
/// `renew_summaries`.
template <class Pool>
void undo_commit(cache_core<Pool>& core, const planned_item& item) {
  auto& state = core.state_of(item);
  core.room.undo(state, core.pool);
  state.go_back(core.policy.segment, item.first, core.policy.evict.spacing());
  state.rollback_floor = item.floor_before;
  state.queries_from = item.queries_before;
  state.stale_summaries = state.stale_summaries && !state.in_first_prompt();
  core.trim_pages(state);
}

/// prepare_commit; if pages that it needs do not come, it is taken back.
/// @return false if the item has failed
template <class Pool>
bool try_prepare_commit(cache_core<Pool>& core, planned_item& item, index_t accepted) {
  if (item.failed) return false;
  ZOOMR_TRY { prepare_commit(core, item, accepted); }
  ZOOMR_CATCH(const error& cause) {
    undo_commit(core, item);
    core.keep_failure(item, cause);
  }
  return !item.failed;
}

/// A whole commit of one item.
/// @return false if the item has failed: then it is undone
template <class Pool>
bool try_commit_item(cache_core<Pool>& core, planned_item& item, index_t accepted) {
  if (!try_prepare_commit(core, item, accepted)) return false;
  finish_commit(core, item, accepted);
  return true;
}

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L6. The ends of a pass and of a step, for one sequence.
#pragma once

#include <zoomr/cache/retaining.hpp>

namespace zoomr {
inline namespace v0 {

/// Makes the choice that an item's last token is due, from the queries noted in its pass; all rows of it.
template <class Policy, class T>
void make_choice(cache_core<Policy, T>& core, planned_item& item) {
  if constexpr (Policy::selects) {
    const shape& model = core.sizes.model;
    asking_token<Policy, T> token(core, item, item.last());
    selection& pending = core.pending[static_cast<std::size_t>(item.seq)];
    for (index layer = 0; layer < model.layers; ++layer) {
      for (index head = 0; head < model.heads; ++head) {
        const choice_row of = row_for(model, core.policy.agree.per, layer, head);
        if (layer != of.first_layer || head != of.first_head) continue;
        const bool if_drifted = !item.prompt && token.planned().action == refresh_action::choose_if_drifted;
        if (if_drifted && !token.drifted(of, {})) continue;
        token.choose(of, {}, pending);
        item.chosen = true;
      }
    }
  }
}

/// What the queries [tokens of the item, heads, head_dim] of a chunk of the prompt are needed for: retention observes
/// them, and the very last makes the first choice.
template <class Policy, class T>
void observe_prompt(cache_core<Policy, T>& core, planned_item& item, index layer, view<const float, 3> queries) {
  if (item.chooses) asking_token<Policy, T>(core, item, item.last()).note(layer, queries[item.tokens - 1]);
  if constexpr (decltype(core.policy.retain)::observes) {
    if (core.sizes.kept > 0) observe_chunk(core, item, layer, queries);
  }
}

/// Adds the pass that has just ended to the sequence's statistics.
template <class Policy, class T>
void count_pass(cache_core<Policy, T>& core, planned_item& item) {
  if (item.prompt) return;
  auto& state = core.state_of(item);
  ++state.stats.passes;
  std::int64_t most = 0;
  for (index t = 0; t < item.tokens; ++t) {
    std::int64_t& read = core.table[static_cast<std::size_t>(item.planned + t)].lane_tokens;
    most = std::max(most, read);
    read = 0;
  }
  memory_use use = core.bytes_in_use(state);
  if (core.policy.store.offloads)
    use.details = most * 2 * core.sizes.model.head_dim * static_cast<byte_count>(sizeof(T));
  state.stats.device_peak = std::max(state.stats.device_peak, use.total());
}

/// Lets retention do what the tokens just committed have made due.
/// @return true if the lanes hold other tokens than before
template <class Policy, class T>
bool retain(cache_core<Policy, T>& core, const planned_item& item, index accepted) {
  if constexpr (decltype(core.policy.retain)::observes) {
    auto& state = core.state_of(item);
    if (item.prompt) {
      retain_prompt(core, state);
      return item.prompt_ends;
    }
    if constexpr (decltype(core.policy.retain)::while_decoding) {
      for (index t = std::max(0, accepted - core.sizes.noted); t < accepted; ++t) {
        state.noted.copy_from(core.noting, item.draft + t, item.first + t);
      }
      if (retains_after(core.policy, core.limits, state.prompt_end, item.first + accepted - 1)) {
        return retain_again(core, state);
      }
    }
  }
  return false;
}

/// Makes the first `accepted` tokens of an item part of its sequence. Pages that do not come fail it in the middle:
/// before that, nothing changes but tokens and segments, what `core.room` keeps a copy of, summaries that can be made
/// again, and places that hold nothing yet; all the rest comes after it.
template <class Policy, class T>
void commit_item(cache_core<Policy, T>& core, planned_item& item, index accepted) {
  auto& state = core.state_of(item);
  count_pass(core, item);
  if (accepted == 0) return;
  const bool chooses = item.chooses && accepted == item.tokens;
  if (!item.prompt && chooses && !item.chosen && core.policy.agree.per == scope::sequence) make_choice(core, item);
  const index segments_before = core.commit_tokens(state, item, accepted);
  const bool prompt_ended = item.prompt && item.prompt_ends;
  constexpr bool observes = decltype(core.policy.retain)::observes;
  const bool other_tokens = retain(core, item, accepted);
  state.stale_summaries = other_tokens && !state.in_prompt();  // until all are made anew
  if (!observes || !state.in_prompt()) core.summarize(state, other_tokens ? 0 : segments_before);
  state.stale_summaries = false;
  // From here on nothing fails.
  for (index t = std::max(0, accepted - core.sizes.records); t < accepted && !item.prompt; ++t) {
    state.queries.copy_from(core.drafts, item.draft + t, item.first + t);
  }
  if (prompt_ended && chooses) make_choice(core, item);
  if (chooses && item.chosen) {
    std::swap(state.in_force, core.pending[static_cast<std::size_t>(item.seq)]);
    state.log.push(item.last(), state.in_force, level::summary);
  }
  core.evict(state);
  core.room.finish(core.pool);
  (item.prompt ? state.stats.prompt_tokens : state.stats.tokens) += accepted;
  commit_queries(core, state, item);
}

/// Makes the summaries again that a commit has made before it failed. They get the bits that they had: since tokens
/// were given up for the last time all of what they are made from is there.
template <class Policy, class T>
void renew_summaries(cache_core<Policy, T>& core, sequence_state<Policy>& state) {
  if (!state.stale_summaries) return;
  core.summarize(state, 0);
  state.stale_summaries = false;
}

/// commit_item; if pages that it needs do not come, the sequence is what it was.
/// @return false if the item has failed
template <class Policy, class T>
bool try_commit_item(cache_core<Policy, T>& core, planned_item& item, index accepted) {
  auto& state = core.state_of(item);
  const index tokens = state.tokens();
  const index floor = state.undo_floor;
  return core.may_fail(item, [&] {
    try {
      commit_item(core, item, accepted);
    } catch (const error&) {
      core.room.undo(state, core.pool);
      state.go_back(core.policy.segment, tokens);
      state.undo_floor = floor;
      state.stale_summaries = state.stale_summaries && !state.in_prompt();  // the sequence's next step renews them
      core.trim_pages(state);
      throw;
    }
  });
}

}  // namespace v0
}  // namespace zoomr

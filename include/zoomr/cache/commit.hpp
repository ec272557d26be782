// SPDX-License-Identifier: Apache-2.0
// L6. The ends of a pass and of a step, for one sequence.
#pragma once

#include <zoomr/cache/choosing.hpp>

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

/// What the queries [tokens of the item, heads, head_dim] of a prompt's last chunk are needed for: retention
/// observes the last ones, and the very last makes the first choice.
template <class Policy, class T>
void observe_prompt(cache_core<Policy, T>& core, planned_item& item, index layer, view<const float, 3> queries) {
  const shape& model = core.sizes.model;
  auto& state = core.state_of(item);
  if (item.chooses) asking_token<Policy, T>(core, item, item.last()).note(layer, queries[item.tokens - 1]);
  if constexpr (decltype(core.policy.retain)::observes) {
    const index prompt = item.first + item.tokens;
    const index kept = core.policy.retain.kept(prompt);
    if (kept >= prompt) return;
    state.kept.resize(static_cast<std::size_t>(model.lanes()) * static_cast<std::size_t>(kept));
    const index observed = std::min(core.policy.retain.queries, prompt);
    const view<const float, 3> last = queries.slice(item.tokens - observed, item.tokens);
    for (index kv_head = 0; kv_head < model.kv_heads; ++kv_head) {
      const view<const float, 3> of_group(last.data() + kv_head * model.group() * last.stride(1),
                                          {observed, model.group(), model.head_dim},
                                          {last.stride(0), last.stride(1), 1});
      index* out = state.kept.data() + (std::int64_t{layer} * model.kv_heads + kv_head) * kept;
      core.observed.keep(core.policy.retain, core.lane(state, layer, kv_head), of_group, prompt, core.policy.zone.sinks,
                         view<index>(out, {kept}));
    }
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

/// Makes the first `accepted` tokens of an item part of its sequence.
template <class Policy, class T>
void commit_item(cache_core<Policy, T>& core, planned_item& item, index accepted) {
  auto& state = core.state_of(item);
  count_pass(core, item);
  if (accepted == 0) return;
  const bool chooses = item.chooses && accepted == item.tokens;
  if (!item.prompt && chooses && !item.chosen && core.policy.agree.per == scope::sequence) make_choice(core, item);
  const index segments_before = core.commit_tokens(state, item, accepted);
  (item.prompt ? state.stats.prompt_tokens : state.stats.tokens) += accepted;
  for (index t = std::max(0, accepted - core.sizes.records); t < accepted && !item.prompt; ++t) {
    state.queries.copy_from(core.drafts, item.draft + t, item.first + t);
  }
  const bool prompt_ended = item.prompt && item.prompt_ends;
  constexpr bool observes = decltype(core.policy.retain)::observes;
  if (observes && prompt_ended && !state.kept.empty()) {
    core.compact_prompt(state, static_cast<index>(state.kept.size()) / core.sizes.model.lanes());
  }
  if (!observes || !state.in_prompt()) core.summarize(state, observes && prompt_ended ? 0 : segments_before);
  if (prompt_ended && chooses) make_choice(core, item);
  if (chooses && item.chosen) {
    std::swap(state.in_force, core.pending[static_cast<std::size_t>(item.seq)]);
    state.log.push(item.last(), state.in_force, level::summary);
  }
  core.evict(state);
}

}  // namespace v0
}  // namespace zoomr

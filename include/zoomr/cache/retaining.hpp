// SPDX-License-Identifier: Apache-2.0
// L6. Retention at work: at the end of the prompt and, for a retainer that works while decoding, every so many tokens
// from there, each lane gives up what its queries do not look at. What is left moves together in the order of
// positions, and the pages behind it go back to the pool.
//
// Nothing is added up in between: the queries since the last time are remembered, and the attention that they pay is
// measured when it is needed. So a draft that is rejected or a step that is dropped leaves nothing to be undone.
#pragma once

#include <zoomr/cache/choosing.hpp>

namespace zoomr {
inline namespace v0 {

/// The sums of one query head's attention that a retainer which accumulates has carried over.  [slots in use]
template <class Policy>
view<float> carried(const layout<Policy>& sizes, buffer<float>& of, index layer, index head, index tokens) {
  return {of.data() + (std::int64_t{layer} * sizes.model.heads + head) * sizes.carried, {tokens}};
}

/// Moves the keys and values of the slots in `kept` to the front of one lane: in place, or to spare pages.
template <class Policy, class T>
void move_lane(cache_core<Policy, T>& core, const sequence_state<Policy>& state, index layer, index kv_head,
               view<const index> kept) {
  const auto from = core.lane(state, layer, kv_head);
  auto to = from;
  if constexpr (retention_may_fail<Policy>) to = core.pool.lane(layer, kv_head, core.room.pages());
  for (index slot = 0; slot < kept.size(); ++slot) {
    const auto* key = from.key(kept[slot]);
    auto* goal = to.writable_key(slot);
    std::copy_n(key, core.sizes.model.head_dim, goal);
    std::copy_n(key + from.value_offset, core.sizes.model.head_dim, goal + to.value_offset);
  }
}

/// Moves the sums of the slots in `kept` to the front, for each query head of one lane.
template <class Policy>
void move_sums(const layout<Policy>& sizes, buffer<float>& of, index layer, index kv_head, view<const index> kept) {
  if (sizes.carried == 0) return;
  const index group = sizes.model.group();
  for (index head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const view<float> sums = carried(sizes, of, layer, head, sizes.carried);
    for (index slot = 0; slot < kept.size(); ++slot) sums[slot] = sums[kept[slot]];
  }
}

/// Each lane now holds `kept` tokens, which its table of positions names, and nothing else.
template <class Policy, class T>
void compacted(cache_core<Policy, T>& core, sequence_state<Policy>& state, index kept) {
  core.room.give_pages(state, pages_for(kept));
  state.kept_each = kept;
  state.compacted_end = state.tokens();
  core.trim_pages(state);
}

/// Lets the queries of the tokens in `asking` be heard in one lane, on top of the sums that are carried. The result
/// lies in `core.observed`, and in `into` if sums are carried.
/// @param queries  queries(position) is [heads, head_dim]
template <class Policy, class T, class Queries>
void hear_queries(cache_core<Policy, T>& core, sequence_state<Policy>& state, index layer, index kv_head, run asking,
                  buffer<float>& into, Queries queries) {
  const shape& model = core.sizes.model;
  const auto lane = core.lane(state, layer, kv_head);
  const index before = state.slot_end(asking.first);
  const index held = state.slot_end(asking.last);
  core.observed.copy_keys(lane, held);
  for (index g = 0; g < model.group(); ++g) {
    const index head = kv_head * model.group() + g;
    const view<float> sums = core.observed.sums(g, held);
    std::fill(sums.begin(), sums.end(), 0.0f);
    if (core.sizes.carried > 0)
      std::copy_n(carried(core.sizes, state.received, layer, head, before).data(), before, sums.data());
    heard_query heard;
    heard.head = g;
    heard.pinned = state.pinned(core.policy.zone);
    heard.earlier = before;
    for (index t = asking.first; t < asking.last; ++t) {
      heard.group = queries(t).slice(kv_head * model.group(), (kv_head + 1) * model.group());
      heard.query = heard.group[g];
      heard.position = t;
      core.observed.hear(core.policy.retain, lane, heard, state.slot_end(t + 1), sums);
    }
    if (core.sizes.carried > 0) std::copy_n(sums.data(), held, carried(core.sizes, into, layer, head, held).data());
  }
}

/// Remembers, until commit, the last queries [tokens of the item, heads, head_dim] of a chunk of a prompt in one layer:
/// retention may observe them at the prompt's end, which is not known yet.
template <class Policy, class T>
void remember_queries(cache_core<Policy, T>& core, const planned_item& item, index layer,
                      view<const float, 3> queries) {
  const index count = std::min(item.tokens, core.sizes.remembered);
  for (index i = 0; i < count; ++i) {
    copy_queries(queries[item.tokens - count + i], core.remembering.at(item.remembered + i, 0, layer));
  }
}

/// Makes them part of the sequence, whose tokens are committed. Nothing of it can fail.
template <class Policy, class T>
void commit_queries(cache_core<Policy, T>& core, sequence_state<Policy>& state, const planned_item& item) {
  if (core.sizes.remembered == 0 || !item.prompt) return;
  const index count = std::min(item.tokens, core.sizes.remembered);
  for (index i = 0; item.heard && i < count; ++i) {
    state.prompted.copy_from(core.remembering, item.remembered + i, item.first + item.tokens - count + i);
  }
  state.queries_from = std::max(state.queries_from, state.tokens() - (item.heard ? core.sizes.remembered : 0));
}

/// Lets the queries [tokens of the item, heads, head_dim] of a chunk of the prompt be heard in one layer, after those
/// that are remembered of chunks before it, provisionally, and after the last chunk says which positions each lane
/// keeps.
template <class Policy, class T>
void observe_chunk(cache_core<Policy, T>& core, planned_item& item, index layer, view<const float, 3> queries) {
  constexpr bool accumulates = decltype(core.policy.retain)::accumulates;
  const shape& model = core.sizes.model;
  auto& state = core.state_of(item);
  const index end = item.first + item.tokens;
  const index kept = core.policy.retain.kept(end);
  if (core.policy.zone.prompt || (!accumulates && kept >= end)) return;  // nothing of a pinned prompt can go
  const index first = accumulates ? item.first : end - core.policy.retain.observed(end);
  for (index kv_head = 0; kv_head < model.kv_heads; ++kv_head) {
    hear_queries(core, state, layer, kv_head, {first, end}, state.receiving, [&](index t) {
      if (t >= item.first) return queries[t - item.first];
      return view<const float, 2>(state.prompted.at(t, 0, layer));
    });
    if (!item.prompt_ends || kept >= end) continue;
    core.observed.choose(core.policy.retain, core.observed.all_sums(model.group(), end), end - first,
                         core.policy.zone.sinks, state.kept_positions(layer * model.kv_heads + kv_head, kept));
    state.keeping = kept;
  }
}

/// Commits what the queries of a chunk of the prompt have led to. Nothing has changed if pages do not come.
template <class Policy, class T>
void retain_prompt(cache_core<Policy, T>& core, sequence_state<Policy>& state) {
  const shape& model = core.sizes.model;
  const auto each_lane = [&](auto visit) {
    for (index lane = 0; state.keeping > 0 && lane < model.lanes(); ++lane) {
      visit(lane / model.kv_heads, lane % model.kv_heads, state.kept_positions(lane, state.keeping));
    }
  };
  core.room.begin(state);
  each_lane([&](index layer, index kv_head, view<const index> kept) { move_lane(core, state, layer, kv_head, kept); });
  if (core.sizes.carried > 0) {
    core.room.swap_sums(state);
    if (core.policy.zone.prompt) std::fill_n(state.received.data(), state.received.size(), 0.0f);
    state.observed_end = core.policy.zone.prompt ? 0 : state.tokens();
  }
  each_lane([&](index layer, index kv_head, view<const index> kept) {
    move_sums(core.sizes, state.received, layer, kv_head, kept);
  });
  if (state.keeping > 0) compacted(core, state, state.keeping);
}

/// One lane gives up what the queries just heard do not look at; `kept` slots are left.
template <class Policy, class T>
void give_up(cache_core<Policy, T>& core, sequence_state<Policy>& state, index layer, index kv_head, index kept) {
  const shape& model = core.sizes.model;
  const view<index> slots = core.observed.kept(kept);
  core.observed.choose(core.policy.retain, core.observed.all_sums(model.group(), state.slots()), core.sizes.noted,
                       std::max(state.pinned(core.policy.zone), core.policy.zone.sinks), slots);
  move_lane(core, state, layer, kv_head, slots);
  move_sums(core.sizes, state.receiving, layer, kv_head, slots);
  const index lane = layer * model.kv_heads + kv_head;
  const slot_map before = state.slots_of(lane);
  const view<index> positions = state.kept_positions(lane, kept);  // in place: no slot moves to the back
  for (index slot = 0; slot < kept; ++slot) positions[slot] = before.position_of(slots[slot]);
}

/// After every so many tokens: lets the queries since the last time be heard, and gives up what is too much.
/// @return true if tokens were given up
template <class Policy, class T>
bool retain_again(cache_core<Policy, T>& core, sequence_state<Policy>& state) {
  const shape& model = core.sizes.model;
  const index held = state.slots();
  const index pinned = state.pinned(core.policy.zone);
  const index kept = pinned + core.policy.retain.kept(held - pinned);
  if (core.sizes.carried == 0 && kept >= held) return false;
  const run asking{state.tokens() - core.sizes.noted, state.tokens()};
  core.room.begin(state);
  for (index layer = 0; layer < model.layers; ++layer) {
    for (index kv_head = 0; kv_head < model.kv_heads; ++kv_head) {
      hear_queries(core, state, layer, kv_head, asking, state.receiving,
                   [&](index t) { return view<const float, 2>(state.noted.at(t, 0, layer)); });
      if (kept < held) give_up(core, state, layer, kv_head, kept);
    }
  }
  if (core.sizes.carried > 0) core.room.swap_sums(state);
  state.observed_end = state.tokens();
  if (kept < held) compacted(core, state, kept);
  return kept < held;
}

}  // namespace v0
}  // namespace zoomr

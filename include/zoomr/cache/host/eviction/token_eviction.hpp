// SPDX-License-Identifier: Apache-2.0
// L6. Eviction at work: at the end of each prompt and, for an evictor that works while decoding, every so many tokens
// from there, each KV lane evicts the tokens that its queries attend least. What is left moves together in the order of
// positions, and the pages after it go back to the pool.
//
// Nothing is added up in between: the queries that will be observed are remembered, and the attention that they pay is
// measured when it is needed. So a draft that is rejected or a step that is dropped leaves nothing to be rolled back.
#pragma once

#include <zoomr/cache/host/eviction/prompt_observation.hpp>
#include <zoomr/paging/stored_rows.hpp>

namespace zoomr::inline v0::detail {

/// Moves the keys and values of the slots in `kept` to the front of one KV lane: in place, or to spare pages.
/// @param kept  ascending slots: none moves to the back, so that in place none is overwritten before it has moved.
///              Those that stay are not written, since their pages may be shared
/// @throws error(storage) if pages do not come
/// @cost  copies 2 * head_dim numbers for each slot that is kept
template <class Pool>
void move_kv_lane(cache_core<Pool>& core, const sequence_state& state, index_t layer, index_t kv_head,
                  view<const index_t> kept) {
  const auto from = core.kv_lane(state, layer, kv_head);
  const auto to =
      core.sizes.eviction_may_fail ? core.pool.kv_lane(core.donors.stored(layer), kv_head, core.room.pages()) : from;
  for (index_t slot = 0; slot < kept.size(); ++slot) {
    if (kept[slot] == slot && !core.sizes.eviction_may_fail) continue;
    const auto* key = from.key(kept[slot]);
    auto* goal = to.writable_key(slot);
    copy_row(key, kept[slot], goal, slot, core.sizes.model.head_dim);
    copy_value(from, key, kept[slot], to, goal, slot);
  }
}

/// Moves the sums of the slots in `kept` to the front, for each query head of one KV lane.
template <class Pool>
void move_sums(const cache_core<Pool>& core, buffer<float>& memory, index_t layer, index_t kv_head,
               view<const index_t> kept) {
  if (core.sizes.carried == 0) return;
  const index_t group = core.sizes.model.group();
  for (index_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const view<float> sums = carried(core, memory, layer, head, core.sizes.carried);
    for (index_t slot = 0; slot < kept.size(); ++slot) sums[slot] = sums[kept[slot]];
  }
}

/// Each KV lane now holds `kept` tokens, which its table of positions names, and nothing else.
template <class Pool>
void compacted(cache_core<Pool>& core, sequence_state& state, index_t kept) {
  core.room.give_pages(state, pages_for(kept));
  state.kept_each.committed = kept;
  state.compacted_end = state.tokens();
  core.trim_pages(state);
}

/// Commits what the queries of a chunk of the first prompt have led to. If pages do not come, `core.room` undoes it.
///
/// Before the prompt's end only sums change. They are by slot, so that they move with the tokens. A pinned prompt is
/// never evicted, and is not observed: its sums begin at 0.
template <class Pool>
void evict_after_prefill(cache_core<Pool>& core, sequence_state& state) {
  const shape& stored = core.sizes.stored;
  const auto each_kv_lane = [&](auto visit) {
    for (index_t kv_lane = 0; state.kept_each.pending > 0 && kv_lane < stored.kv_lanes(); ++kv_lane) {
      visit(core.donors.layer_of(kv_lane / stored.kv_heads), kv_lane % stored.kv_heads,
            state.kept_positions(kv_lane, state.kept_each.pending));
    }
  };
  core.room.begin(state);
  each_kv_lane([&](index_t layer, index_t kv_head, view<const index_t> kept) {
    move_kv_lane(core, state, layer, kv_head, kept);
  });
  if (core.sizes.carried > 0) {
    core.room.swap_sums(state);
    if (core.policy.zone.prompt) std::fill_n(state.received.committed.data(), state.received.committed.size(), 0.0f);
    state.observed_end = core.policy.zone.prompt ? 0 : state.tokens();
  }
  each_kv_lane([&](index_t layer, index_t kv_head, view<const index_t> kept) {
    move_sums(core, state.received.committed, layer, kv_head, kept);
  });
  if (state.kept_each.pending > 0) compacted(core, state, state.kept_each.pending);
}

/// One KV lane evicts what the `queries` queries just observed in `memory` attend least; `kept` slots are left.
template <class Pool>
void evict_tokens(cache_core<Pool>& core, sequence_state& state, index_t layer, index_t kv_head, index_t kept,
                  index_t queries, const pinned_tokens& pins, observation& memory) {
  const shape& model = core.sizes.model;
  const index_t kv_lane = core.lane_of(layer, kv_head);
  const slot_map before = state.slots_of(kv_lane);
  const view<index_t> slots = memory.kept(kept);
  memory.choose(core.policy.evict, memory.all_sums(model.group(), state.slots()), queries,
                (std::max)(state.pinned(core.policy.zone), core.policy.zone.sinks), slots, pins, before);
  move_kv_lane(core, state, layer, kv_head, slots);
  move_sums(core, state.received.pending, layer, kv_head, slots);
  const view<index_t> positions = state.kept_positions(kv_lane, kept);  // in place: no slot moves to the back
  for (index_t slot = 0; slot < kept; ++slot) positions[slot] = before.position_of(slots[slot]);
}

/// Queries were observed, and each KV lane has `kept` tokens left, which is all if none was evicted.
template <class Pool>
void observed(cache_core<Pool>& core, sequence_state& state, index_t kept) {
  if (core.sizes.carried > 0) core.room.swap_sums(state);
  state.observed_end = state.tokens();
  if (kept < state.slots()) compacted(core, state, kept);
}

/// After every so many tokens: observes the last `layout::noted` queries, and evicts what is too much. An evictor that
/// accumulates observes also while there is room for all.
/// @pre    the sequence has noted its last `layout::noted` queries
/// @throws error(storage) if pages do not come; `core.room` undoes it
/// @return true if tokens were evicted
/// @cost   reads each KV lane's keys once for each of these queries and query head, and copies what is kept
template <class Pool>
bool evict_while_decoding(cache_core<Pool>& core, sequence_state& state) {
  const shape& stored = core.sizes.stored;
  const index_t held = state.slots();
  const index_t pinned = state.pinned(core.policy.zone);
  const index_t kept = pinned + core.policy.evict.kept(held - pinned);
  if (core.sizes.carried == 0 && kept >= held) return false;
  const token_range positions{state.tokens() - core.sizes.noted, state.tokens()};
  const pinned_tokens pins = kept < held ? pinned_tokens(state) : pinned_tokens();
  core.room.begin(state);
  const executor workers = core.threads_for(std::int64_t{core.sizes.noted} * held * stored.layers);
  for_each_piece(workers, stored.kv_lanes(), [&](index_t kv_lane, index_t thread) {
    observation& memory = core.of_thread[thread].observed;
    const index_t layer = core.donors.layer_of(kv_lane / stored.kv_heads);
    const index_t kv_head = kv_lane % stored.kv_heads;
    observe_queries(core, state, layer, kv_head, positions, state.received.pending, memory,
                    [&](index_t t) { return view<const float, 2>(state.noted.at(t, 0, layer)); });
    if (kept < held) evict_tokens(core, state, layer, kv_head, kept, core.sizes.noted, pins, memory);
  });
  observed(core, state, kept);
  return kept < held;
}

/// What a chunk of a later prompt has added to the sums of one KV lane, for `evict_tokens`.
template <class Pool>
void take_pending_sums(cache_core<Pool>& core, sequence_state& state, index_t layer, index_t kv_head,
                       observation& memory) {
  const index_t held = state.slots(), group = core.sizes.model.group();
  memory.copy_keys(core.kv_lane(state, layer, kv_head), held, core.limits.key_scale.at(layer, kv_head));
  for (index_t g = 0; g < group; ++g) {
    const view<float> sums = carried(core, state.received.pending, layer, kv_head * group + g, held);
    std::copy_n(sums.data(), held, memory.sums(g, held).data());
  }
}

/// Commits what the queries of a chunk of a later prompt, whose tokens are committed, lead to: sums change where they
/// are carried, and at the prompt's end tokens are evicted. What is observed then, unless it is summed, are the last
/// queries of the prompt.
/// @throws error(storage) if pages do not come; `core.room` undoes it
/// @return true if tokens were evicted
template <class Pool>
bool evict_after_later_prompt(cache_core<Pool>& core, sequence_state& state, const planned_item& item) {
  const index_t held = state.slots(), end = state.tokens();
  const index_t kept = item.prompt_ends ? kept_after_prompt(core.policy, state, end) : held;
  const bool carries = core.sizes.carried > 0;
  const shape& stored = core.sizes.stored;
  if (!carries && kept >= held) return false;
  const token_range positions{observed_from(core.policy, state.last_prompt_begin(), end), end};
  const index_t remembered_from = end - (std::min)(item.tokens, core.sizes.remembered);
  const auto query = [&](index_t t, index_t layer) {
    if (t < item.first) return view<const float, 2>(state.last_queries.at(t, 0, layer));
    return view<const float, 2>(core.prompt_queries.at(item.remembered + t - remembered_from, 0, layer));
  };
  const pinned_tokens pins = kept < held ? pinned_tokens(state) : pinned_tokens();
  core.room.begin(state);
  const executor workers = core.threads_for(std::int64_t{positions.size()} * held * stored.layers);
  for_each_piece(workers, kept < held ? stored.kv_lanes() : 0, [&](index_t kv_lane, index_t thread) {
    observation& memory = core.of_thread[thread].observed;
    const index_t layer = core.donors.layer_of(kv_lane / stored.kv_heads), kv_head = kv_lane % stored.kv_heads;
    if (carries) {
      take_pending_sums(core, state, layer, kv_head, memory);
    } else {
      observe_queries(core, state, layer, kv_head, positions, state.received.pending, memory,
                      [&](index_t t) { return query(t, layer); });
    }
    evict_tokens(core, state, layer, kv_head, kept, positions.size(), pins, memory);
  });
  observed(core, state, kept);
  return kept < held;
}

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L6. What is done with the queries of a prompt: eviction observes them, its last ones are remembered for the prompt's
// end, and the very last makes the first choice.
//
// Which queries eviction will observe is decided only when the prompt ends. So each chunk leaves its last
// `layout::remembered` ones in `core.prompt_queries`, commit moves them to the sequence's ring `last_queries`, and the
// last chunk observes those together with its own. An evictor that accumulates observes each chunk as it comes.
// Of a later prompt they are observed when its last chunk is committed, since until then the lists of what is kept are
// those of the eviction before.
#pragma once

#include <zoomr/cache/host/choosing/token_queries.hpp>
#include <zoomr/core/function_ref.hpp>

namespace zoomr::inline v0::detail {

/// The sums of one query head's attention that an evictor which accumulates has carried over.  [slots in use]
/// @param head    query head of the layer
/// @param tokens  how many slots are in use
template <class Pool>
view<float> carried(const cache_core<Pool>& core, buffer<float>& memory, index_t layer, index_t head, index_t tokens) {
  const std::int64_t row = std::int64_t{core.donors.stored(layer)} * core.sizes.model.heads + head;
  return {memory.data() + row * core.sizes.carried, {tokens}};
}

/// Lets the queries of the tokens in `positions` update one KV lane, on top of the sums that are carried. The result
/// is in `memory`, and in `into` if sums are carried.
/// @param positions  the last exclusive; their keys are in their slots already
/// @param into       pending sums; not touched unless sums are carried
/// @param memory     working memory
/// @param queries    queries(position) is [heads, head_dim]
/// @throws error(storage) if pages do not come
/// @cost  reads the KV lane's keys once for each token of `positions` and four query heads of the group
template <class Pool>
void observe_queries(cache_core<Pool>& core, sequence_state& state, index_t layer, index_t kv_head,
                     token_range positions, buffer<float>& into, observation& memory,
                     function_ref<view<const float, 2>(index_t)> queries) {
  const shape& model = core.sizes.model;
  const auto kv_lane = core.kv_lane(state, layer, kv_head);
  const index_t before = state.slot_end(positions.first);
  const index_t held = state.slot_end(positions.last);
  const auto group_of = [&](index_t t) {
    return queries(t).slice(kv_head * model.group(), (kv_head + 1) * model.group());
  };
  memory.copy_keys(kv_lane, held, core.limits.key_scale.at(layer, kv_head));
  for (index_t g = 0; g < model.group(); ++g) {
    const view<float> sums = memory.sums(g, held);
    std::fill(sums.begin(), sums.end(), 0.0f);
    if (core.sizes.carried == 0) continue;
    const index_t head = kv_head * model.group() + g;
    std::copy_n(carried(core, state.received.committed, layer, head, before).data(), before, sums.data());
  }
  const float scale = core.limits.logit_scale(layer, kv_head, model.head_dim);
  const token_range heads{kv_head * model.group(), (kv_head + 1) * model.group()};
  for (index_t t = positions.first; t < positions.last && !core.policy.evict.updates_importance; ++t) {
    memory.add(kv_lane, group_of(t), state.slot_end(t + 1), scale, core.logits_of(state, layer, heads, t));
  }
  for (index_t g = 0; core.policy.evict.updates_importance && g < model.group(); ++g) {
    observed_query observed;
    observed.head = g;
    observed.earlier = before;
    observed.scale = core.limits.logits.scale;
    observed.logits = core.logits_of(state, layer, heads, 0).lane;
    for (index_t t = positions.first; t < positions.last; ++t) {
      observed.group = group_of(t);
      observed.position = t;
      memory.update_importance(core.policy.evict, observed, state.slot_end(t + 1), memory.sums(g, held));
    }
  }
  for (index_t g = 0; core.sizes.carried > 0 && g < model.group(); ++g) {
    const index_t head = kv_head * model.group() + g;
    std::copy_n(memory.sums(g, held).data(), held, carried(core, into, layer, head, held).data());
  }
}

/// visit(number of the token) of the last `most` ones that spans name as a question.
template <class Visit>
void each_named(view<const planned_token> tokens, index_t most, Visit visit) {
  index_t first = tokens.size();
  for (index_t left = most; first > 0 && left > 0; --first)
    left -= has(tokens[first - 1].classes, token_class::question);
  for (; first < tokens.size(); ++first) {
    if (has(tokens[first].classes, token_class::question)) visit(first);
  }
}

/// Keeps, until commit, the queries of named tokens of a chunk of a prompt, in their own memory.
template <class Pool>
[[gnu::cold, gnu::noinline]] void keep_question(cache_core<Pool>& core, const planned_item& item, index_t layer,
                                                view<const float, 3> queries) {
  question_queries& kept = core.state_of(item).questions;
  index_t number = kept.next(item.first);
  each_named(core.step.first_tokens(item, item.tokens), kept.tokens(), [&](index_t t) {
    const view<float, 2> to = kept.place(number++);
    core.voters.each_in(layer, [&](index_t voter, index_t head) {
      std::copy_n(queries[t][head].data(), to.extent(1), to[voter].data());
    });
  });
}

/// Makes those of the first `count` tokens part of the sequence; what is kept of tokens that are gone goes.
template <class Pool>
[[gnu::cold, gnu::noinline]] void commit_question(const cache_core<Pool>& core, sequence_state& state,
                                                  const planned_item& item, index_t count) {
  question_queries& kept = state.questions;
  kept.next(item.first);
  each_named(core.step.first_tokens(item, count), kept.tokens(), [&](index_t t) { kept.commit(item.first + t); });
}

/// Remembers, until commit, the last queries [tokens of the item, heads, head_dim] of a chunk of a prompt in one layer:
/// eviction may observe them at the prompt's end, which is still to come.
template <class Pool>
void remember_queries(cache_core<Pool>& core, const planned_item& item, index_t layer, view<const float, 3> queries) {
  const index_t count = (std::min)(item.tokens, core.sizes.remembered);
  for (index_t i = 0; i < count; ++i) {
    keep_queries(core, layer, queries[item.tokens - count + i], core.prompt_queries, item.remembered + i);
  }
  if (core.sizes.question > 0) keep_question(core, item, layer, queries);
}

/// Makes them part of the sequence, whose tokens are committed; after the prompt, those of accepted tokens for later
/// choices. Nothing of it can fail. Unless all layers have seen a chunk's queries none of them counts as kept:
/// `queries_from` moves to the chunk's end.
template <class Pool>
void commit_queries(cache_core<Pool>& core, sequence_state& state, const planned_item& item, index_t accepted) {
  if (core.sizes.remembered == 0 || (!item.prompt && core.sizes.heard == 0)) return;
  const index_t count = (std::min)(accepted, core.sizes.remembered);
  const bool known = !item.prompt || item.observed;
  for (index_t i = 0; known && i < count; ++i) {
    const index_t position = item.first + accepted - count + i;
    if (item.prompt) {
      state.last_queries.copy_from(core.prompt_queries, item.remembered + i, position);
    } else {
      state.last_queries.copy_from(core.eviction_queries, item.draft + position - item.first, position);
    }
  }
  state.remember_queries(item.first, known, core.sizes.remembered);
  if (core.sizes.question > 0) commit_question(core, state, item, item.prompt && known ? accepted : 0);
}

/// Lets the queries [tokens of the item, heads, head_dim] of a chunk of a later prompt update one layer, if the evictor
/// accumulates: as pending, after those of the tokens since some were last evicted.
template <class Pool>
void observe_later_chunk(cache_core<Pool>& core, planned_item& item, index_t layer, view<const float, 3> queries) {
  if (!core.policy.evict.accumulates) return;
  auto& state = core.state_of(item);
  const token_range positions{state.last_eviction(core.policy.evict.every), item.first + item.tokens};
  const executor workers = core.threads_for(std::int64_t{positions.size()} * state.slot_end(positions.last));
  for_each_piece(workers, core.sizes.model.kv_heads, [&](index_t kv_head, index_t thread) {
    observation& memory = core.of_thread[thread].observed;
    observe_queries(core, state, layer, kv_head, positions, state.received.pending, memory, [&](index_t t) {
      if (t >= item.first) return queries[t - item.first];
      return view<const float, 2>(state.noted.at(t, 0, layer));
    });
  });
}

/// Lets the queries [tokens of the item, heads, head_dim] of a chunk of the first prompt update one layer, after those
/// that are remembered of chunks before it, as pending, and after the last chunk lists the positions that each KV lane
/// keeps. These lists are written at once: nothing reads them before the commit.
template <class Pool>
void observe_chunk(cache_core<Pool>& core, planned_item& item, index_t layer, view<const float, 3> queries) {
  const bool accumulates = core.policy.evict.accumulates;
  const shape& model = core.sizes.model;
  auto& state = core.state_of(item);
  const index_t end = item.first + item.tokens;
  const index_t kept = core.policy.evict.kept(end);
  if (core.policy.zone.prompt || (!accumulates && kept >= end)) return;  // nothing of a pinned prompt can go
  const index_t first = accumulates ? item.first : end - core.policy.evict.observed(end);
  const bool evicts = item.prompt_ends && kept < end;
  const pinned_tokens pins = evicts ? pinned_tokens(state, core.step.first_tokens(item, item.tokens)) : pinned_tokens();
  const executor workers = core.threads_for(std::int64_t{end - first} * end);
  for_each_piece(workers, model.kv_heads, [&](index_t kv_head, index_t thread) {
    observation& memory = core.of_thread[thread].observed;
    observe_queries(core, state, layer, kv_head, {first, end}, state.received.pending, memory, [&](index_t t) {
      if (t >= item.first) return queries[t - item.first];
      return view<const float, 2>(state.last_queries.at(t, 0, layer));
    });
    if (!evicts) return;
    memory.choose(core.policy.evict, memory.all_sums(model.group(), end), end - first, core.policy.zone.sinks,
                  state.kept_positions(core.lane_of(layer, kv_head), kept), pins);
  });
  if (evicts) state.kept_each.pending = kept;
}

/// What the queries [tokens of the item, heads, head_dim] of a chunk of the prompt are needed for: eviction observes
/// those of layers that store, and the very last makes the first choice.
template <class Pool>
void observe_prompt(cache_core<Pool>& core, planned_item& item, index_t layer, view<const float, 3> queries) {
  if (item.chooses) keep_for_choice(core, item, layer, queries[item.tokens - 1]);
  if (core.sizes.kept == 0 || !core.donors.stores(layer)) return;
  if (core.state_of(item).in_first_prompt()) {
    observe_chunk(core, item, layer, queries);
  } else {
    observe_later_chunk(core, item, layer, queries);
  }
}

}  // namespace zoomr::inline v0::detail

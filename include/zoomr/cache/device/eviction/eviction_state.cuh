// SPDX-License-Identifier: Apache-2.0
// L6. What a device cache keeps for eviction: which positions each KV lane holds, queries and sums that are needed when
// tokens are evicted again, and working memory for one layer; and the counts of it that the host has.
//
// Host and device divide the work by what it depends on. How many tokens a KV lane keeps follows from counts:
// `due_eviction` decides it in `commit`, without waiting for the device. Which ones they are is on the device alone, in
// `kept`; a position finds its slot by both together (`slots_of`).
#pragma once

#include <zoomr/cache/device/eviction/observation.cuh>
#include <zoomr/cache/planning/layout.hpp>
#include <zoomr/cache/tokens/token_state.hpp>
#include <zoomr/policy/slot_map.hpp>

namespace zoomr::inline v0::detail {

/// How many tokens each KV lane of a sequence has kept, as the host has counted; which ones is in each KV lane's table.
struct held_slots {
  index_t kept = 0;           // 0: everything
  index_t compacted_end = 0;  // first position after what has been compacted
};

/// What a commit has made due of one sequence, in slots of each KV lane: all of them hold, and keep, as many.
struct eviction_due {
  bool updates_importance = false;  // the queries in `asking`, which are remembered, are observed
  bool chooses = false;             // which slots are kept is yet to be found, unless `kept` is 0
  bool after_prompt = false;        // a later one: its queries are remembered apart
  token_range asking{};             // queries that count, in positions
  index_t kept = 0;                 // so many slots of each KV lane are kept; 0: all
  held_slots before;                // what the KV lanes held
  index_t slots = 0;                // as many as are held before the eviction
  index_t summed = 0;               // slots that have carried sums
};

/// Sums that an evictor which accumulates carries over: how many slots of each KV lane have some, and where they are.
/// A chunk of the prompt writes the half that is not current, and its commit exchanges them; so a chunk that is dropped
/// leaves nothing. While decoding the sums are changed in place, by the commit itself.
struct carried_sums {
  index_t slots = 0;
  index_t half = 0;  // of the two; the other is written before a chunk of the prompt is committed
};

/// What the tokens just committed make due. Nothing is enqueued here; but `state` and `sums` become what they are once
/// that is done, so that the caller must enqueue it in the same commit.
///
/// With p pinned tokens, p + kept(slots - p) slots of each KV lane stay: where a prompt has ended, and while decoding
/// after every `evict.every` tokens from there. At the end of the first prompt they are chosen already.
/// @param most     layout::kept
/// @param noted    layout::noted
/// @param state    with the tokens that have just been committed
/// @param carries  sums are carried over
/// @param prompt   these were tokens of the prompt
inline eviction_due due_eviction(const any_policy& policy, const config& limits, index_t most, index_t noted,
                                 bool carries, token_state& state, carried_sums& sums, bool prompt) {
  eviction_due due;
  if (!policy.evict.observes) return due;
  const bool first = prompt && state.later_prompts.empty();
  const index_t end = state.tokens(), pinned = state.in_first_prompt() ? end : state.pinned(policy.zone);
  const bool ended = prompt && !state.in_prompt();
  const bool again = !prompt && evicts_after(policy, limits, state.evictions_begin(), end - 1);
  const bool unobserved = first && policy.zone.prompt;
  due.before = {state.kept_each.committed, state.compacted_end};
  due.slots = state.slots();
  due.summed = sums.slots;
  const index_t kept = pinned + policy.evict.kept(due.slots - pinned);
  if (most == 0 || (!ended && !again && !(prompt && carries))) return due;
  due.chooses = !first;
  due.after_prompt = prompt && !first;
  due.asking = {prompt ? observed_from(policy, state.last_prompt_begin(), end) : end - noted, end};
  due.updates_importance = (again && carries) || (!first && !carries && (ended || again) && kept < due.slots);
  if ((ended || again) && kept < due.slots) {
    due.kept = state.kept_each.committed = kept;
    state.compacted_end = end;
  }
  if (due.updates_importance || (prompt && carries)) state.observed_end = unobserved ? 0 : end;
  if (carries) sums.slots = unobserved ? 0 : state.slots();
  if (prompt && carries && !unobserved) sums.half = 1 - sums.half;
  return due;
}

/// Empty unless the policy evicts tokens. Kernels of the caller's stream alone touch it, in its order:
/// - kept: at the end of the first prompt choose_kept_kernel writes it, layer by layer, and nothing reads it until the
///   commit, after which `held_slots::kept` is not 0 any more; later on compact_kernel does.
/// - noted: note_kernel writes the queries of each pass, of a draft the last `noted_tokens`, which the eviction reads.
///   A draft ends where tokens are evicted, so that what a rejected token has written is not read before it is
///   overwritten.
/// - chunk, prompted: remember_chunk_kernel writes a step's queries to the first, commit_chunk_kernel copies them to
///   the second; there they are observed when a later chunk ends the prompt, or when a later prompt ends.
/// - carried: the kernels that observe add to it, choose_kept_kernel reads it, compact_kernel moves it.
/// - sums, received, importance, keys, asked, work, slots: working memory, which the next layer or item overwrites.
struct eviction_arrays {
  shape model;
  index_t most_kept = 0;       // of each KV lane
  index_t tokens = 0;          // of a sequence, at most
  index_t noted_tokens = 0;    // of a sequence
  index_t prompt_tokens = 0;   // of a sequence, whose queries are remembered for the prompt's end
  index_t carried_tokens = 0;  // of a sequence, at most
  index_t sequences = 0;
  index_t* kept = nullptr;       // [sequences][KV lanes][most_kept]  ascending positions before `compacted_end`
  float* noted = nullptr;        // [sequences][noted_tokens][layers][heads][head_dim]  queries, by position
  float* prompted = nullptr;     // [sequences][prompt_tokens][layers][heads][head_dim]  the same, while a prompt comes
  float* chunk = nullptr;        // [pending queries][layers][heads][head_dim]  of prompts, until commit
  float* carried = nullptr;      // [2][sequences][layers][heads][carried_tokens]  sums, by slot
  observed_sum* sums = nullptr;  // [heads][observed_at_once]
  float* received = nullptr;     // [heads][tokens]
  float* importance = nullptr;   // [kv_heads][tokens]
  float* keys = nullptr;         // [kv_heads][tokens][head_dim]  if the evictor reads them
  float* group_queries = nullptr;  // [heads][group][head_dim]  the queries that are observed with that of a head
  float* work = nullptr;           // [heads][tokens]  if the evictor reads keys and carries no sums
  index_t* slots = nullptr;        // [kv_heads][most_kept]  that a layer's KV lanes keep, after the first prompt

  /// Takes the arrays from a block.
  template <class Carver, class Sizes>
  void carve(Carver& from, const Sizes& cache) {
    model = cache.model;
    most_kept = cache.kept;
    tokens = cache.kept > 0 ? cache.tokens : 0;
    noted_tokens = cache.noted;
    carried_tokens = cache.carried;
    sequences = cache.sequences;
    prompt_tokens = cache.kept > 0 ? cache.remembered : 0;  // of heads that vote others keep them
    const std::int64_t heads = model.heads;
    kept = from.template take<index_t>(bounded_product({sequences, model.kv_lanes(), most_kept}));
    noted = from.template take<float>(bounded_product({sequences, noted_tokens, model.layers, heads, model.head_dim}));
    prompted = from.template take<float>(bounded_product({sequences, prompt_tokens, query_numbers()}));
    chunk = from.template take<float>(bounded_product({cache.kept > 0 ? cache.pending_queries : 0, query_numbers()}));
    carried = from.template take<float>(bounded_product({2, sequences, model.layers, heads, carried_tokens}));
    sums = from.template take<observed_sum>(tokens > 0 ? heads * observed_at_once : 0);
    received = from.template take<float>(heads * tokens);
    importance = from.template take<float>(std::int64_t{model.kv_heads} * tokens);
    keys = from.template take<float>(cache.reads_keys ? std::int64_t{model.kv_heads} * tokens * model.head_dim : 0);
    group_queries = from.template take<float>(cache.reads_keys ? heads * model.group() * model.head_dim : 0);
    work = from.template take<float>(cache.reads_keys && carried_tokens == 0 ? heads * tokens : 0);
    slots = from.template take<index_t>(std::int64_t{model.kv_heads} * most_kept);
  }

  /// The table of a KV lane, to be written.  [count]
  ZOOMR_HD view<index_t> kept_of(index_t sequence, index_t kv_lane, index_t count) const {
    return {kept + (std::int64_t{sequence} * model.kv_lanes() + kv_lane) * most_kept, {count}};
  }
  /// Where the tokens of a KV lane are, which holds as many as the host has counted.
  ZOOMR_HD slot_map slots_of(index_t sequence, index_t kv_lane, held_slots held) const {
    if (held.kept == 0) return {};
    return {kept_of(sequence, kv_lane, held.kept), held.compacted_end};
  }
  /// Numbers of one token's queries in all layers.
  ZOOMR_HD std::int64_t query_numbers() const { return std::int64_t{model.layers} * model.heads * model.head_dim; }
  /// Queries of one layer, by position modulo `noted_tokens`.  [noted_tokens, heads, head_dim]
  ZOOMR_HD view<float, 3> noted_of(index_t sequence, index_t layer) const {
    return queries_of(noted, noted_tokens, sequence, layer);
  }
  /// The same of a prompt, modulo `prompt_tokens`.  [prompt_tokens, heads, head_dim]
  ZOOMR_HD view<float, 3> prompted_of(index_t sequence, index_t layer) const {
    return queries_of(prompted, prompt_tokens, sequence, layer);
  }
  /// Sums of one layer; without carried ones working memory.  [heads, slots]
  ZOOMR_HD view<float, 2> sums_of(index_t sequence, index_t layer, index_t half, index_t count) const {
    if (carried_tokens == 0) return {received, {model.heads, count}, {tokens, 1}};
    const std::int64_t place = (std::int64_t{half} * sequences + sequence) * model.layers + layer;
    return {carried + place * model.heads * carried_tokens, {model.heads, count}, {carried_tokens, 1}};
  }
  /// The queries of the group of `head`, a copy for the block of this head alone.  [group, head_dim]
  ZOOMR_HD view<float, 2> asked_of(index_t head) const {
    return {group_queries + std::int64_t{head} * model.group() * model.head_dim, {model.group(), model.head_dim}};
  }
  /// Working memory of an evictor that updates importance.  [count]
  ZOOMR_HD view<float> work_of(index_t head, index_t count) const {
    return {work + std::int64_t{head} * tokens, {count}};
  }
  /// Keys of one KV head, to work in.  [count, head_dim]
  ZOOMR_HD view<float, 2> keys_of(index_t kv_head, index_t count) const {
    return {keys + std::int64_t{kv_head} * tokens * model.head_dim, {count, model.head_dim}};
  }

 private:
  ZOOMR_HD view<float, 3> queries_of(float* rings, index_t records, index_t sequence, index_t layer) const {
    const std::int64_t of_layer = std::int64_t{model.heads} * model.head_dim;
    return {rings + (std::int64_t{sequence} * records * model.layers + layer) * of_layer,
            {records, model.heads, model.head_dim},
            {model.layers * of_layer, model.head_dim, 1}};
  }
};

}  // namespace zoomr::inline v0::detail

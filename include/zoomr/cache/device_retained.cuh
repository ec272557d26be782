// SPDX-License-Identifier: Apache-2.0
// L6. What a device cache keeps for retention: which positions each lane holds, queries and sums that are needed when
// tokens are given up again, and working memory for one layer; and what the host knows of it.
#pragma once

#include <zoomr/cache/observation.cuh>
#include <zoomr/cache/sequence_state.hpp>
#include <zoomr/slots.hpp>

namespace zoomr {
inline namespace v0 {

/// How many tokens each lane of a sequence has kept, as the host knows it; which ones, each lane's table says.
struct held_slots {
  index kept = 0;           // 0: everything
  index compacted_end = 0;  // first position after what has been compacted
};

/// What a commit has made due of one sequence.
struct retention_due {
  bool hears = false;  // while decoding: the queries since the last time are heard
  index kept = 0;      // so many slots of each lane are kept; 0: all
  held_slots before;   // what the lanes held
  index slots = 0;     // how much
  index summed = 0;    // slots that have carried sums
};

/// Sums that a retainer which accumulates carries over: how many slots of each lane have some, and where they are.
struct carried_sums {
  index slots = 0;
  index half = 0;  // of the two; the other is written before a chunk of the prompt is committed
};

template <class Retainer>
constexpr bool retention_reads_keys() {
  if constexpr (Retainer::observes) return Retainer::reads_keys;
  return false;
}

/// What the tokens just committed make due; the state is that after it.
/// @param most     layout::kept
/// @param carries  sums are carried over
template <class Policy>
retention_due retain_now(const Policy& policy, const config& limits, index most, bool carries,
                         token_state<Policy>& state, carried_sums& sums, bool prompt) {
  retention_due due;
  if constexpr (decltype(policy.retain)::observes) {
    const index pinned = state.in_prompt() ? state.tokens() : state.pinned(policy.zone);
    const bool ended = prompt && !state.in_prompt();
    const bool again = !prompt && retains_after(policy, limits, state.prompt_end, state.tokens() - 1);
    due.before = {state.kept_each, state.compacted_end};
    due.slots = state.slots();
    due.summed = sums.slots;
    const index kept = pinned + policy.retain.kept(due.slots - pinned);
    if (most == 0 || (!ended && !again && !(prompt && carries))) return due;
    due.hears = again && (carries || kept < due.slots);
    if ((ended || again) && kept < due.slots) {
      due.kept = state.kept_each = kept;
      state.compacted_end = state.tokens();
    }
    if (due.hears || (prompt && carries)) state.observed_end = prompt && policy.zone.prompt ? 0 : state.tokens();
    if (carries) sums.slots = prompt && policy.zone.prompt ? 0 : state.slots();
    if (prompt && carries && !policy.zone.prompt) sums.half = 1 - sums.half;
  }
  return due;
}

/// Empty unless the policy gives tokens up.
struct retained_arrays {
  shape model;
  index most_kept = 0;       // of each lane
  index tokens = 0;          // of a sequence, at most
  index noted_tokens = 0;    // of a sequence
  index prompt_tokens = 0;   // of a sequence, whose queries are remembered for the prompt's end
  index carried_tokens = 0;  // of a sequence, at most
  index sequences = 0;
  index* kept = nullptr;         // [sequences][lanes][most_kept]  ascending positions before `compacted_end`
  float* noted = nullptr;        // [sequences][noted_tokens][layers][heads][head_dim]  queries, by position
  float* prompted = nullptr;     // [sequences][prompt_tokens][layers][heads][head_dim]  the same, while a prompt comes
  float* chunk = nullptr;        // [provisional queries][layers][heads][head_dim]  of prompts, until commit
  float* carried = nullptr;      // [2][sequences][layers][heads][carried_tokens]  sums, by slot
  observed_sum* sums = nullptr;  // [heads][observed_at_once]
  float* received = nullptr;     // [heads][tokens]
  float* importance = nullptr;   // [kv_heads][tokens]
  float* keys = nullptr;         // [kv_heads][tokens][head_dim]  if the retainer reads them
  float* asked = nullptr;        // [heads][group][head_dim]  the queries that are heard with that of a head
  float* work = nullptr;         // [heads][tokens]  if the retainer reads keys and carries no sums
  index* slots = nullptr;        // [kv_heads][most_kept]  that a layer's lanes keep, while decoding

  /// Takes the arrays from a block.
  template <class Carver, class Sizes>
  void carve(Carver& from, const Sizes& of) {
    model = of.model;
    most_kept = of.kept;
    tokens = of.kept > 0 ? of.tokens : 0;
    noted_tokens = of.noted, prompt_tokens = of.remembered, carried_tokens = of.carried, sequences = of.sequences;
    const std::int64_t heads = model.heads;
    kept = from.template take<index>(bounded_product({sequences, model.lanes(), most_kept}));
    noted = from.template take<float>(bounded_product({sequences, noted_tokens, model.layers, heads, model.head_dim}));
    prompted = from.template take<float>(bounded_product({sequences, prompt_tokens, query_numbers()}));
    chunk = from.template take<float>(bounded_product({of.provisional_queries, query_numbers()}));
    carried = from.template take<float>(bounded_product({2, sequences, model.layers, heads, carried_tokens}));
    sums = from.template take<observed_sum>(tokens > 0 ? heads * observed_at_once : 0);
    received = from.template take<float>(heads * tokens);
    importance = from.template take<float>(std::int64_t{model.kv_heads} * tokens);
    keys = from.template take<float>(of.reads_keys ? std::int64_t{model.kv_heads} * tokens * model.head_dim : 0);
    asked = from.template take<float>(of.reads_keys ? heads * model.group() * model.head_dim : 0);
    work = from.template take<float>(of.reads_keys && carried_tokens == 0 ? heads * tokens : 0);
    slots = from.template take<index>(noted_tokens > 0 ? std::int64_t{model.kv_heads} * most_kept : 0);
  }

  /// The table of a lane, to be written.  [count]
  ZOOMR_HD view<index> kept_of(index sequence, index lane, index count) const {
    return {kept + (std::int64_t{sequence} * model.lanes() + lane) * most_kept, {count}};
  }
  ZOOMR_HD slot_map slots_of(index sequence, index lane, held_slots held) const {
    if (held.kept == 0) return {};
    return {kept_of(sequence, lane, held.kept), held.compacted_end};
  }
  /// Numbers of one token's queries in all layers.
  ZOOMR_HD std::int64_t query_numbers() const { return std::int64_t{model.layers} * model.heads * model.head_dim; }
  /// Queries of one layer, by position modulo `noted_tokens`.  [noted_tokens, heads, head_dim]
  ZOOMR_HD view<float, 3> noted_of(index sequence, index layer) const {
    return queries_of(noted, noted_tokens, sequence, layer);
  }
  /// The same of a prompt, modulo `prompt_tokens`.  [prompt_tokens, heads, head_dim]
  ZOOMR_HD view<float, 3> prompted_of(index sequence, index layer) const {
    return queries_of(prompted, prompt_tokens, sequence, layer);
  }
  /// Sums of one layer; without carried ones working memory.  [heads, slots]
  ZOOMR_HD view<float, 2> sums_of(index sequence, index layer, index half, index count) const {
    if (carried_tokens == 0) return {received, {model.heads, count}, {tokens, 1}};
    const std::int64_t place = (std::int64_t{half} * sequences + sequence) * model.layers + layer;
    return {carried + place * model.heads * carried_tokens, {model.heads, count}, {carried_tokens, 1}};
  }
  ZOOMR_HD view<float, 2> asked_of(index head) const {
    return {asked + std::int64_t{head} * model.group() * model.head_dim, {model.group(), model.head_dim}};
  }
  /// Working memory beside the sums of a layer: where these are carried, `received` is free.  [count]
  ZOOMR_HD view<float> work_of(index head, index count) const {
    return {(carried_tokens == 0 ? work : received) + std::int64_t{head} * tokens, {count}};
  }
  /// Keys of one KV head, to work in.  [count, head_dim]
  ZOOMR_HD view<float, 2> keys_of(index kv_head, index count) const {
    return {keys + std::int64_t{kv_head} * tokens * model.head_dim, {count, model.head_dim}};
  }

 private:
  ZOOMR_HD view<float, 3> queries_of(float* rings, index records, index sequence, index layer) const {
    const std::int64_t of_layer = std::int64_t{model.heads} * model.head_dim;
    return {rings + (std::int64_t{sequence} * records * model.layers + layer) * of_layer,
            {records, model.heads, model.head_dim},
            {model.layers * of_layer, model.head_dim, 1}};
  }
};

}  // namespace v0
}  // namespace zoomr

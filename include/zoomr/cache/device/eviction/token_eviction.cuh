// SPDX-License-Identifier: Apache-2.0
// L6. Device twin of cache/host/eviction/token_eviction.hpp. How many tokens a KV lane keeps follows from counts, so
// that the host plans pages and slots; which ones, the device finds: at the end of the first prompt while the queries
// of its last chunk pass, layer by layer, and writes them where nothing reads before commit; while decoding, and at the
// end of a later prompt, at the commit itself, from queries that were remembered. Then keys, values and sums move
// together.
//
// All of it is enqueued on the caller's stream, which orders it: keys of a layer are appended before its queries are
// observed; what is observed, chosen and compacted in working memory of one layer comes before the next layer; the
// summaries of what is left come last (launches.cuh).
#pragma once

#include <zoomr/cache/device/core.cuh>
#include <zoomr/cache/device/eviction/eviction_kernels.cuh>
#include <zoomr/policy/evict/rating.cuh>
#include <zoomr/policy/evict/redundancy_aware.cuh>

namespace zoomr::inline v0::detail {

/// One sequence in one layer, whose tokens are to be rated. Its members enqueue; none waits, and none changes the
/// host's state.
template <index_t HeadDim, class Policy, class T>
struct observing_layer {
  device_core<Policy, T>& core;
  const common_arrays<T>& arrays;
  index_t sequence;
  index_t layer;
  held_slots held;  // what its KV lanes hold now

  const shape& model() const { return core.sizes.model; }
  /// Slots before that of `position`, as `token_state::slot_end` before the eviction that is due.
  index_t slot_end(index_t position) const {
    return held.kept == 0 ? position : held.kept + position - held.compacted_end;
  }

  /// Copies keys of the KV lanes' first slots, for an evictor that reads them; does nothing for others.
  /// @cost  1 launch
  void copy_keys(index_t slots, stream_ref stream) const {
    if constexpr (decltype(core.kernel_policy.evict)::reads_keys) {
      const dim3 grid(static_cast<unsigned>(std::min<index_t>(slots, 256)), static_cast<unsigned>(model().kv_heads));
      launch({grid, dim3(static_cast<unsigned>(HeadDim))}, stream, &copy_keys_kernel<HeadDim, T>, arrays, sequence,
             layer, slots, core.limits.key_scale.all);
    }
  }

  /// Lets the queries of the tokens in `positions` update importance, on top of the first `summed` sums in half `from`;
  /// the result is in half `to`.
  /// @param queries            [rows, heads, head_dim]  that of the first token in row `first_row`; they go round
  /// @param observed_together  first token of those that are observed together, of which some may have been already
  /// @cost  1 launch for an evictor that updates importance itself, 4 for each 32 queries for others
  template <class Number>
  void update_importance(view<const Number, 3> queries, index_t first_row, token_range positions,
                         index_t observed_together, index_t summed, index_t from, index_t to, stream_ref stream) const {
    using evictor_type = decltype(core.kernel_policy.evict);
    observing_queries<T, Number> batch;
    batch.queries = queries;
    batch.group = model().group();
    const index_t slots = slot_end(positions.last);
    batch.before = arrays.eviction.sums_of(sequence, layer, from, slots);
    batch.received = arrays.eviction.sums_of(sequence, layer, to, slots);
    batch.known = (std::min)(summed, slot_end(positions.first));
    batch.first_row = first_row;
    batch.count = positions.size();
    batch.context = slot_end(positions.first + 1);
    batch.soft_cap = core.limits.logits.soft_cap;
    batch.slopes = arrays.slopes;
    batch.position = positions.first;
    batch.kept = {arrays.eviction.kept_of(sequence, layer * model().kv_heads, 0).data(),
                  {model().kv_heads, held.kept},
                  {arrays.eviction.most_kept, 1}};
    batch.compacted_end = held.compacted_end;
    if constexpr (importance_updater<evictor_type>) {
      using kv_lanes_type = lanes_to_update<T>;
      const logit_rule& rule = core.limits.logits;
      const kv_lanes_type kv_lanes{arrays, positions.first, slot_end(observed_together), rule.scale};
      launch({dim3(static_cast<unsigned>(model().heads)), dim3(keep_threads)}, stream,
             &update_importance_kernel<evictor_type, T, Number, kv_lanes_type>, core.kernel_policy.evict, batch,
             kv_lanes);
    } else {
      observe(batch, stream);
    }
  }

  /// Writes which of the first `slots` slots each KV lane keeps: `kept_each` ascending ones, among them those that are
  /// pinned, sinks, and the last ones that are safe by the evictor's rule; the others by the sums in half `half`, to
  /// which `queries` queries have added.
  /// @param kept  [kv_heads][stride]  on the device, out
  /// @cost  1 launch
  void choose(index_t slots, index_t kept_each, index_t queries, index_t half, index_t* kept, std::int64_t stride,
              stream_ref stream) const {
    kv_lanes_to_choose<T> kv_lanes;
    kv_lanes.a = arrays;
    kv_lanes.received = arrays.eviction.sums_of(sequence, layer, half, slots);
    kv_lanes.scored = slots - core.kernel_policy.evict.safe(slots);
    kv_lanes.queries = queries;
    kv_lanes.first = (std::max)(pinned(), core.kernel_policy.zone.sinks);
    kv_lanes.kept = kept;
    kv_lanes.stride = stride;
    kv_lanes.kept_each = kept_each;
    launch({dim3(static_cast<unsigned>(model().kv_heads)), dim3(keep_threads)}, stream,
           &choose_kept_kernel<decltype(core.kernel_policy.evict), decltype(kv_lanes)>, core.kernel_policy.evict,
           kv_lanes);
  }

  /// Moves together what the KV lanes of `layers` layers from this one on keep.
  /// @param slots  [layers * kv_heads][stride]  on the device
  /// @cost  1 launch
  void compact(index_t layers, const index_t* slots, std::int64_t stride, index_t kept, index_t half,
               stream_ref stream) const {
    launch({dim3(static_cast<unsigned>(layers * model().kv_heads)), dim3(compact_threads)}, stream,
           &compact_kernel<HeadDim, T>, arrays,
           compaction{sequence, layer * model().kv_heads, slots, stride, kept, half, held});
  }

  /// Adds what the queries pay, some at a time: those after the first add to what the ones before them have left in
  /// `received`, where the slots that they alone see have nothing yet.
  template <class Number>
  void observe(observing_queries<T, Number> batch, stream_ref stream) const {
    batch.layer = core.layer(layer).read_only();
    batch.pages = arrays.pages_of(sequence);
    batch.scale = core.limits.logit_scale(0, 0, HeadDim);
    batch.sums = arrays.eviction.sums;
    for (index_t left = batch.count; left > 0; left -= batch.count) {
      batch.count = (std::min)(observed_together<HeadDim>, left);
      observe_queries<HeadDim>(batch, stream);
      batch.first_row = batch.row_of(batch.count);
      batch.context += batch.count;
      batch.position += batch.count;
      batch.before = batch.received;
      batch.known = batch.context - 1;
    }
  }

  // While the first prompt comes nothing of it is pinned: where zones pin it, its queries are not observed.
  index_t pinned() const { return core.state(sequence).pinned(core.policy.zone); }
};

/// As device_launches::load, of an evictor that observes queries of `Number`.
template <index_t HeadDim, class Policy, class T, class Number>
void load_observation() {
  using evictor_type = decltype(Policy::evict);
  if constexpr (importance_updater<evictor_type>) {
    load_kernel(update_importance_kernel<evictor_type, T, Number, lanes_to_update<T>>);
  } else {
    load_kernel(find_largest_kernel<HeadDim, T, Number>);
    load_kernel(add_weights_kernel<HeadDim, T, Number>);
    load_kernel(add_shares_kernel<HeadDim, T, Number>);
  }
}
template <index_t HeadDim, class Policy, class T, class Number>
void load_eviction() {
  using evictor_type = decltype(Policy::evict);
  load_observation<HeadDim, Policy, T, Number>();
  load_observation<HeadDim, Policy, T, float>();  // those that are remembered
  if constexpr (evictor_type::reads_keys) load_kernel(copy_keys_kernel<HeadDim, T>);
  load_kernel(choose_kept_kernel<evictor_type, kv_lanes_to_choose<T>>);
  load_kernel(compact_kernel<HeadDim, T>);
  load_kernel(note_kernel<T, Number>);
  load_kernel(remember_chunk_kernel<T, Number>);
  load_kernel(commit_chunk_kernel<T>);
}

/// Remembers, until commit, the last queries of a chunk of a prompt in one layer: eviction may observe them at the
/// prompt's end, which is still to come.
/// @cost  1 launch
template <class Policy, class T, class Number>
void remember_queries(const device_core<Policy, T>& core, const common_arrays<T>& arrays, const planned_item& item,
                      index_t layer, view<const Number, 3> queries, stream_ref stream) {
  const index_t count = (std::min)(item.tokens, core.sizes.remembered);
  if (count == 0 || !item.prompt) return;
  launch({dim3(static_cast<unsigned>(count)), dim3(keep_threads)}, stream, &remember_chunk_kernel<T, Number>, arrays,
         layer, queries, item.packed + item.tokens - count, item.remembered);
}

/// Makes them part of a sequence whose tokens are committed, unless they are no longer needed.
/// @cost  1 launch
template <class Policy, class T>
void commit_queries(const device_core<Policy, T>& core, const common_arrays<T>& arrays, const device_item& item,
                    stream_ref stream) {
  const index_t count = (std::min)(item.tokens, core.sizes.remembered);
  if (count == 0 || !item.observed || (item.due.kept > 0 && !item.due.after_prompt)) return;
  launch({dim3(static_cast<unsigned>(count)), dim3(keep_threads)}, stream, &commit_chunk_kernel<T>, arrays, item.seq,
         item.remembered, item.first + item.tokens - count);
}

/// Lets the queries of a chunk of a later prompt update one layer, if the policy adds up attention, after those of the
/// tokens since some were last evicted.
/// @param queries  [tokens of the step, heads, head_dim]
template <index_t HeadDim, class Policy, class T, class Number>
void observe_later_chunk(device_core<Policy, T>& core, const common_arrays<T>& arrays, const device_item& item,
                         index_t layer, view<const Number, 3> queries, stream_ref stream) {
  if (core.sizes.carried == 0) return;
  const device_sequence& state = core.state(item.seq);
  const carried_sums& sums = state.sums;
  const index_t end = item.first + item.tokens, first = state.last_eviction(core.kernel_policy.evict.every);
  const observing_layer<HeadDim, Policy, T> observer{core, arrays, item.seq, layer, core.held(state)};
  if (first < item.first) {
    observer.update_importance(view<const float, 3>(arrays.eviction.noted_of(item.seq, layer)),
                               first % core.sizes.noted, {first, item.first}, first, sums.slots, sums.half,
                               1 - sums.half, stream);
  }
  observer.update_importance(queries, item.packed, {item.first, end}, first,
                             first < item.first ? state.slot_end(item.first) : sums.slots,
                             first < item.first ? 1 - sums.half : sums.half, 1 - sums.half, stream);
}

/// Lets the queries of a chunk of a prompt that count update one layer, after those that are remembered of chunks
/// before it; where it ends the first prompt, lists what each KV lane will keep.
/// @param queries  [tokens of the step, heads, head_dim]
/// @cost  for each such item 4 launches for each 32 queries, 1 or 2 more at the end of the prompt; before that 1 to
///        remember queries
template <index_t HeadDim, class Policy, class T, class Number>
void observe_prompts(device_core<Policy, T>& core, const common_arrays<T>& arrays, index_t layer,
                     view<const Number, 3> queries, stream_ref stream) {
  for (device_item& item : core.step.items) {
    remember_queries(core, arrays, item, layer, queries, stream);
    if (!core.observes(item)) continue;
    if (!core.state(item.seq).in_first_prompt()) {
      if constexpr (decltype(core.kernel_policy.evict)::accumulates) {
        observe_later_chunk<HeadDim>(core, arrays, item, layer, queries, stream);
      }
      continue;
    }
    const index_t end = item.first + item.tokens;
    const index_t first = core.sizes.carried > 0 ? item.first : end - core.kernel_policy.evict.observed(end);
    const index_t begin = (std::max)(first, item.first);
    const carried_sums& sums = core.state(item.seq).sums;
    const observing_layer<HeadDim, Policy, T> observer{core, arrays, item.seq, layer, {}};
    // An evictor that updates importance itself reads keys at each query, others only when they rate, at the end.
    if (importance_updater<decltype(core.kernel_policy.evict)>) observer.copy_keys(end, stream);
    if (first < begin) {
      observer.update_importance(view<const float, 3>(arrays.eviction.prompted_of(item.seq, layer)),
                                 first % core.sizes.remembered, {first, begin}, first, 0, sums.half, 1 - sums.half,
                                 stream);
    }
    observer.update_importance(queries, item.packed + begin - item.first, {begin, end}, first,
                               first < begin ? begin : sums.slots, sums.half, 1 - sums.half, stream);
    const index_t kept = core.kept_of_prompt(item);
    if (kept == 0) continue;
    if (!importance_updater<decltype(core.kernel_policy.evict)>) observer.copy_keys(end, stream);
    observer.choose(end, kept, end - first, 1 - sums.half,
                    arrays.eviction.kept_of(item.seq, layer * core.sizes.model.kv_heads, kept).data(), core.sizes.kept,
                    stream);
  }
}

/// Does what the commit of an item has made due: at the end of the first prompt all layers move what `observe_prompts`
/// has chosen; later on each layer observes, unless its chunks have done so, chooses and moves in turn.
/// @return  true if its KV lanes hold other tokens than before
/// @cost    at the end of the first prompt 1 launch; later on, for each layer 1 if the evictor reads keys, 1 or 4 for
///          each 32 queries to observe, and 2 to evict
template <index_t HeadDim, class Policy, class T>
bool evict_in_lanes(device_core<Policy, T>& core, const common_arrays<T>& arrays, const device_item& item,
                    stream_ref stream) {
  const eviction_due& due = item.due;
  const eviction_arrays& retained = arrays.eviction;
  const index_t sequence = item.seq;
  const auto& state = core.state(sequence);
  if (!due.updates_importance && due.kept == 0) return false;
  if (!due.chooses) {
    const observing_layer<HeadDim, Policy, T> every_layer{core, arrays, sequence, 0, due.before};
    every_layer.compact(core.sizes.model.layers, retained.kept_of(sequence, 0, due.kept).data(), core.sizes.kept,
                        due.kept, state.sums.half, stream);
    return true;
  }
  const token_range positions = due.asking;
  for (index_t layer = 0; layer < core.sizes.model.layers; ++layer) {
    const observing_layer<HeadDim, Policy, T> observer{core, arrays, sequence, layer, due.before};
    observer.copy_keys(due.slots, stream);
    if (due.updates_importance) {
      const auto queries =
          due.after_prompt ? retained.prompted_of(sequence, layer) : retained.noted_of(sequence, layer);
      const index_t row = positions.first % (due.after_prompt ? core.sizes.remembered : core.sizes.noted);
      observer.update_importance(view<const float, 3>(queries), row, positions, positions.first, due.summed,
                                 state.sums.half, state.sums.half, stream);
    }
    if (due.kept == 0) continue;
    observer.choose(due.slots, due.kept, positions.size(), state.sums.half, retained.slots, core.sizes.kept, stream);
    observer.compact(1, retained.slots, core.sizes.kept, due.kept, state.sums.half, stream);
  }
  return due.kept > 0;
}

}  // namespace zoomr::inline v0::detail

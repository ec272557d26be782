// SPDX-License-Identifier: Apache-2.0
// L6. Device twin of retaining.hpp. How many tokens a lane keeps follows from counts, so that the host plans pages and
// slots; which ones, the device finds: at the end of the prompt while the queries of its last chunk pass, layer by
// layer, and writes them where nobody looks before commit; while decoding at the commit itself, from queries that were
// remembered. Then keys, values and sums move together.
#pragma once

#include <zoomr/cache/device_core.cuh>
#include <zoomr/cache/device_retain_kernels.cuh>
#include <zoomr/retain/accumulated_attention.cuh>
#include <zoomr/retain/distinct_attention.cuh>
#include <zoomr/retain/lately_best_pages.cuh>
#include <zoomr/retain/observed_attention.cuh>

namespace zoomr {
inline namespace v0 {

/// One sequence in one layer, whose tokens are to be rated.
template <index HeadDim, class Policy, class T>
struct observing_layer {
  device_core<Policy, T>& core;
  const common_arrays<T>& arrays;
  index sequence;
  index layer;
  held_slots held;  // what its lanes hold now

  const shape& model() const { return core.sizes.model; }
  index slot_end(index position) const { return held.kept == 0 ? position : held.kept + position - held.compacted_end; }

  /// Keys of the lanes' first slots, for a retainer that reads them.
  void copy_keys(index slots, stream on) const {
    if constexpr (decltype(core.policy.retain)::reads_keys) {
      const dim3 grid(static_cast<unsigned>(std::min<index>(slots, 256)), static_cast<unsigned>(model().kv_heads));
      launch({grid, dim3(static_cast<unsigned>(HeadDim))}, on, &copy_keys_kernel<HeadDim, T>, arrays, sequence, layer,
             slots, core.limits.key_scale);
    }
  }

  /// Lets the queries of the tokens in `asking` be heard, on top of the first `summed` sums in half `from`; the result
  /// lies in half `to`.
  /// @param queries    [rows, heads, head_dim]  that of the first token in row `first_row`; they go round
  /// @param together   first token of those that are heard together, of which some may have been heard already
  template <class Number>
  void hear(view<const Number, 3> queries, index first_row, run asking, index together, index summed, index from,
            index to, stream on) const {
    using retainer_type = decltype(core.policy.retain);
    observing_queries<T, Number> of;
    of.queries = queries;
    of.group = model().group();
    const index slots = slot_end(asking.last);
    of.before = arrays.retained.sums_of(sequence, layer, from, slots);
    of.received = arrays.retained.sums_of(sequence, layer, to, slots);
    of.known = std::min(summed, slot_end(asking.first));
    of.first_row = first_row;
    of.count = asking.size();
    of.context = slot_end(asking.first + 1);
    if constexpr (hearing_observer<retainer_type>) {
      using lanes_type = lanes_to_hear<T>;
      const lanes_type lanes{arrays, asking.first, pinned(), slot_end(together)};
      launch({dim3(static_cast<unsigned>(model().heads)), dim3(keep_threads)}, on,
             &hear_kernel<retainer_type, T, Number, lanes_type>, core.policy.retain, of, lanes);
    } else {
      observe(of, on);
    }
  }

  /// Writes which of the first `slots` slots each lane keeps.
  /// @param kept     of kept[kv_head], with this stride
  void choose(index slots, index kept_each, index queries, index half, index* kept, std::int64_t stride,
              stream on) const {
    lanes_to_choose<T> lanes;
    lanes.a = arrays;
    lanes.received = arrays.retained.sums_of(sequence, layer, half, slots);
    lanes.scored = slots - core.policy.retain.safe(slots);
    lanes.queries = queries;
    lanes.first = std::max(pinned(), core.policy.zone.sinks);
    lanes.kept = kept;
    lanes.stride = stride;
    lanes.kept_each = kept_each;
    launch({dim3(static_cast<unsigned>(model().kv_heads)), dim3(keep_threads)}, on,
           &choose_kept_kernel<decltype(core.policy.retain), decltype(lanes)>, core.policy.retain, lanes);
  }

  /// Moves together what the lanes of `layers` layers from this one on keep.
  void compact(index layers, const index* slots, std::int64_t stride, index kept, index half, stream on) const {
    launch({dim3(static_cast<unsigned>(layers * model().kv_heads)), dim3(compact_threads)}, on,
           &compact_kernel<HeadDim, T>, arrays,
           compacting{sequence, layer * model().kv_heads, slots, stride, kept, half, held});
  }

  /// 32 queries at a time.
  template <class Number>
  void observe(observing_queries<T, Number> of, stream on) const {
    of.layer = {
        arrays.key(layer, 0, 0), nullptr, arrays.sizes.page_numbers(), std::int64_t{page_tokens} * HeadDim, HeadDim, 4};
    of.pages = arrays.pages_of(sequence);
    of.scale = core.limits.logit_scale(HeadDim);
    of.sums = arrays.retained.sums;
    for (index left = of.count; left > 0; left -= of.count) {
      of.count = std::min(observed_at_once, left);
      observe_queries<HeadDim>(of, on);
      of.first_row = of.row_of(of.count);
      of.context += of.count;
      of.before = of.received;
      of.known = of.context - 1;
    }
  }

  index pinned() const {
    const auto& of = core.state(sequence);
    return of.in_prompt() ? 0 : of.pinned(core.policy.zone);
  }
};

/// Remembers, until commit, the last queries of a chunk of a prompt in one layer: retention may observe them at the
/// prompt's end, which is not known yet.
/// @cost  1 launch
template <class Policy, class T, class Number>
void remember_queries(const device_core<Policy, T>& core, const common_arrays<T>& arrays, const planned_item& plan,
                      index layer, view<const Number, 3> queries, stream on) {
  const index count = std::min(plan.tokens, core.sizes.remembered);
  if (count == 0 || !plan.prompt) return;
  launch({dim3(static_cast<unsigned>(count)), dim3(keep_threads)}, on, &remember_chunk_kernel<T, Number>, arrays, layer,
         queries, plan.packed + plan.tokens - count, plan.remembered);
}

/// Makes them part of a sequence whose tokens are committed, unless nobody can ask for them any more.
/// @cost  1 launch
template <class Policy, class T>
void commit_queries(const device_core<Policy, T>& core, const common_arrays<T>& arrays, const device_item& item,
                    stream on) {
  const planned_item& plan = item.plan;
  const index count = std::min(plan.tokens, core.sizes.remembered);
  if (count == 0 || !plan.heard || item.due.kept > 0) return;
  launch({dim3(static_cast<unsigned>(count)), dim3(keep_threads)}, on, &commit_chunk_kernel<T>, arrays, plan.seq,
         plan.remembered, plan.first + plan.tokens - count);
}

/// Lets the queries of a chunk of a prompt that count be heard in one layer, after those that are remembered of chunks
/// before it; where it ends the prompt, says what each lane will keep.
/// @param queries  [tokens of the step, heads, head_dim]
/// @cost  for each such item 4 launches for each 32 queries, 1 or 2 more at the end of the prompt; before that 1 to
///        remember queries
template <index HeadDim, class Policy, class T, class Number>
void observe_prompts(device_core<Policy, T>& core, const common_arrays<T>& arrays, index layer,
                     view<const Number, 3> queries, stream on) {
  for (device_item& item : core.items) {
    planned_item& plan = item.plan;
    remember_queries(core, arrays, plan, layer, queries, on);
    if (!core.observes(plan)) continue;
    const index end = plan.first + plan.tokens;
    const index first = core.sizes.carried > 0 ? plan.first : end - core.policy.retain.observed(end);
    const index here = std::max(first, plan.first);
    const carried_sums& sums = core.state(plan.seq).sums;
    const observing_layer<HeadDim, Policy, T> of{core, arrays, plan.seq, layer, {}};
    if (hearing_observer<decltype(core.policy.retain)>) of.copy_keys(end, on);
    if (first < here) {
      of.hear(view<const float, 3>(arrays.retained.prompted_of(plan.seq, layer)), first % core.sizes.remembered,
              {first, here}, first, 0, sums.half, 1 - sums.half, on);
    }
    of.hear(queries, plan.packed + here - plan.first, {here, end}, first, first < here ? here : sums.slots, sums.half,
            1 - sums.half, on);
    const index kept = core.kept_of_prompt(plan);
    if (kept == 0) continue;
    if (!hearing_observer<decltype(core.policy.retain)>) of.copy_keys(end, on);
    of.choose(end, kept, end - first, 1 - sums.half,
              arrays.retained.kept_of(plan.seq, layer * core.sizes.model.kv_heads, kept).data(), core.sizes.kept, on);
  }
}

/// Does what the commit of an item has made due.
/// @return  true if its lanes hold other tokens than before
/// @cost    at the end of a prompt 1 launch; while decoding, for each layer, 1 to 6
template <index HeadDim, class Policy, class T>
bool retain_lanes(device_core<Policy, T>& core, const common_arrays<T>& arrays, const device_item& item, stream on) {
  const retention_due& due = item.due;
  const retained_arrays& retained = arrays.retained;
  const index sequence = item.plan.seq;
  const auto& state = core.state(sequence);
  if (!due.hears) {
    if (due.kept == 0) return false;
    const observing_layer<HeadDim, Policy, T> all{core, arrays, sequence, 0, due.before};
    all.compact(core.sizes.model.layers, retained.kept_of(sequence, 0, due.kept).data(), core.sizes.kept, due.kept,
                state.sums.half, on);
    return true;
  }
  const run asking{state.tokens() - core.sizes.noted, state.tokens()};
  for (index layer = 0; layer < core.sizes.model.layers; ++layer) {
    const observing_layer<HeadDim, Policy, T> of{core, arrays, sequence, layer, due.before};
    of.copy_keys(due.slots, on);
    of.hear(view<const float, 3>(retained.noted_of(sequence, layer)), asking.first % core.sizes.noted, asking,
            asking.first, due.summed, state.sums.half, state.sums.half, on);
    if (due.kept == 0) continue;
    of.choose(due.slots, due.kept, core.sizes.noted, state.sums.half, retained.slots, core.sizes.kept, on);
    of.compact(1, retained.slots, core.sizes.kept, due.kept, state.sums.half, on);
  }
  return due.kept > 0;
}

}  // namespace v0
}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// L6. Device twin of retaining.hpp. How many tokens a lane keeps follows from counts, so that the host plans pages and
// slots; which ones, the device finds while the queries of the prompt's last chunk pass, layer by layer, and writes
// them where nobody looks before commit. Then keys and values move together.
#pragma once

#include <zoomr/cache/device_core.cuh>
#include <zoomr/core/vectors.cuh>
#include <zoomr/retain/observed_attention.cuh>

namespace zoomr {
inline namespace v0 {

/// A retainer that has done its work when the prompt ends.
template <class T>
concept retains_at_prompt_end = !T::while_decoding && !T::accumulates;

/// The lanes of one layer when a prompt ends.
template <class Policy, class T>
struct lanes_to_choose {
  device_arrays<Policy, T> a;
  index sequence = 0;
  index layer = 0;
  index tokens = 0;   // that each lane holds
  index scored = 0;   // the first so many compete
  index queries = 0;  // that were observed
  index first = 0;    // tokens at the front that are kept in any case
  index kept = 0;

  __device__ lane_to_choose at(index kv_head) const {
    const shape& model = a.sizes.model;
    const retained_arrays& of = a.retained;
    lane_to_choose lane;
    lane.seen.received = {
        of.received + std::int64_t{kv_head} * model.group() * of.tokens, {model.group(), tokens}, {of.tokens, 1}};
    lane.seen.scored = scored;
    lane.seen.queries = queries;
    lane.first = first;
    lane.importance = {of.importance + std::int64_t{kv_head} * of.tokens, {tokens}};
    lane.kept = of.kept_of(sequence, layer * model.kv_heads + kv_head, kept);
    return lane;
  }
};

inline constexpr index compact_threads = 256;

/// Moves keys and values of the slots that its table names to the front of each lane, a block for each. No number moves
/// to the back, so that what a tile of threads reads has not been written by an earlier one.
template <index HeadDim, class Policy, class T>
__global__ void __launch_bounds__(compact_threads)
    compact_kernel(device_arrays<Policy, T> a, index sequence, index kept) {
  constexpr index pieces = HeadDim * static_cast<index>(sizeof(T)) / 16;  // of a key
  const auto lane = static_cast<index>(blockIdx.x);
  const index layer = lane / a.sizes.model.kv_heads;
  const index kv_head = lane % a.sizes.model.kv_heads;
  const view<const index> pages = a.pages_of(sequence);
  const view<const index> slots = a.retained.kept_of(sequence, lane, kept);
  const auto piece_of = [&](index slot, index piece) {
    T* key = a.key(layer, pages[slot / page_tokens], kv_head) + slot % page_tokens * HeadDim;
    return reinterpret_cast<uint4*>(key) + piece;
  };
  const std::int64_t to_value = a.value_offset() / per_vector<T>;
  const std::int64_t all = std::int64_t{kept} * pieces;
  for (std::int64_t first = 0; first < all; first += compact_threads) {
    const std::int64_t at = first + static_cast<index>(threadIdx.x);
    const auto slot = static_cast<index>(at / pieces);
    const auto piece = static_cast<index>(at % pieces);
    const bool moves = at < all && slots[slot] != slot;
    uint4 key{}, value{};
    if (moves) {
      const uint4* from = piece_of(slots[slot], piece);
      key = from[0];
      value = from[to_value];
    }
    __syncthreads();
    if (!moves) continue;
    uint4* to = piece_of(slot, piece);
    to[0] = key;
    to[to_value] = value;
  }
}

/// Lets the last queries of prompts that end in this step be heard in one layer, and says what each lane will keep.
/// @param queries  [tokens of the step, heads, head_dim]
/// @cost  for each such prompt 5 launches, 4 more for each 32 queries beyond the first
template <index HeadDim, class Policy, class T, class Number>
void observe_prompts(device_core<Policy, T>& core, const device_arrays<Policy, T>& arrays, index layer,
                     view<const Number, 3> queries, stream on) {
  const shape& model = core.sizes.model;
  for (device_item& item : core.items) {
    planned_item& plan = item.plan;
    const index kept = core.kept_of_prompt(plan);
    if (kept == 0) continue;
    ++plan.seen_layers;
    const index end = plan.first + plan.tokens;
    const index observed = core.policy.retain.observed(end);
    observing_queries<T, Number> of;
    of.layer = {
        arrays.key(layer, 0, 0), nullptr, arrays.sizes.page_numbers(), std::int64_t{page_tokens} * HeadDim, HeadDim, 4};
    of.pages = arrays.pages_of(plan.seq);
    of.queries = queries;
    of.group = model.group();
    of.scale = core.limits.logit_scale(HeadDim);
    of.sums = arrays.retained.sums;
    of.received = {arrays.retained.received, {model.heads, end}, {arrays.retained.tokens, 1}};
    of.before = of.received;
    for (index first = end - observed; first < end; first += of.count) {
      of.count = std::min(observed_at_once, end - first);
      of.first_row = plan.packed + first - plan.first;
      of.context = first + 1;
      observe_queries<HeadDim>(of, on);
      of.known = of.held();
    }
    const lanes_to_choose<Policy, T> lanes{
        arrays, plan.seq, layer, end, end - core.policy.retain.safe(end), observed, core.policy.zone.sinks, kept};
    launch({dim3(static_cast<unsigned>(model.kv_heads)), dim3(keep_threads)}, on,
           &choose_kept_kernel<decltype(core.policy.retain), lanes_to_choose<Policy, T>>, core.policy.retain, lanes);
  }
}

/// Moves together what the lanes of a sequence keep.
template <index HeadDim, class Policy, class T>
void compact_lanes(device_core<Policy, T>& core, const device_arrays<Policy, T>& arrays, index sequence, stream on) {
  launch({dim3(static_cast<unsigned>(core.sizes.model.lanes())), dim3(compact_threads)}, on,
         &compact_kernel<HeadDim, Policy, T>, arrays, sequence, core.state(sequence).kept_each);
}

}  // namespace v0
}  // namespace zoomr

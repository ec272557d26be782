// SPDX-License-Identifier: Apache-2.0
// L6. The kernels of retention beside those of observation.cuh: queries are remembered, keys copied for retainers that
// read them, queries heard by retainers that listen themselves, and what is kept moves together.
#pragma once

#include <zoomr/cache/device_layout.cuh>
#include <zoomr/core/vectors.cuh>

namespace zoomr {
inline namespace v0 {

/// Remembers the queries of the tokens after the prompt in one layer, a token in each block.
template <class T, class Number>
__global__ void note_kernel(common_arrays<T> a, index layer, view<const Number, 3> queries) {
  const auto t = static_cast<index>(blockIdx.x);
  if (t >= a.table.counts->tokens || a.table.tokens[t].prompt) return;
  const auto& token = a.table.tokens[t];
  const view<float, 2> to = a.retained.noted_of(token.sequence, layer)[token.position % a.retained.noted_tokens];
  for (auto i = static_cast<index>(threadIdx.x); i < to.extent(0) * to.extent(1); i += static_cast<index>(blockDim.x)) {
    const index head = i / to.extent(1);
    const index d = i % to.extent(1);
    to(head, d) = to_float(queries(token.row, head, d));
  }
}

/// Remembers until commit the last queries of a chunk of a prompt in one layer, a query in each block.
/// @param first_row  of `queries`
/// @param first      of the queries that are remembered of this step
template <class T, class Number>
__global__ void remember_chunk_kernel(common_arrays<T> a, index layer, view<const Number, 3> queries, index first_row,
                                      index first) {
  const auto query = static_cast<index>(blockIdx.x);
  const index dims = a.retained.model.head_dim;
  const index numbers = a.retained.model.heads * dims;
  float* const to = a.retained.chunk + (first + query) * a.retained.query_numbers() + std::int64_t{layer} * numbers;
  for (auto i = static_cast<index>(threadIdx.x); i < numbers; i += static_cast<index>(blockDim.x)) {
    to[i] = to_float(queries(first_row + query, i / dims, i % dims));
  }
}

/// Makes them part of a sequence, by position: a query in each block.
template <class T>
__global__ void commit_chunk_kernel(common_arrays<T> a, index sequence, index first, index position) {
  const auto query = static_cast<index>(blockIdx.x);
  const std::int64_t numbers = a.retained.query_numbers();
  const float* const from = a.retained.chunk + (first + query) * numbers;
  float* const to = a.retained.prompted_of(sequence, 0)[(position + query) % a.retained.prompt_tokens].data();
  for (std::int64_t i = threadIdx.x; i < numbers; i += blockDim.x) to[i] = from[i];
}

/// Copies the keys of the first `slots` slots of the lanes of a layer; blockIdx.y is the KV head.
template <index HeadDim, class T>
__global__ void copy_keys_kernel(common_arrays<T> a, index sequence, index layer, index slots, float key_scale) {
  const auto kv_head = static_cast<index>(blockIdx.y);
  const auto d = static_cast<index>(threadIdx.x);
  if (d >= HeadDim) return;
  const view<const index> pages = a.pages_of(sequence);
  const view<float, 2> to = a.retained.keys_of(kv_head, slots);
  for (auto slot = static_cast<index>(blockIdx.x); slot < slots; slot += static_cast<index>(gridDim.x)) {
    const auto* key = a.key(layer, pages[slot / page_tokens], kv_head) + slot % page_tokens * HeadDim;
    to(slot, d) = fused(to_float(key[d]), key_scale, -0.0f);
  }
}

/// What the queries of a layer are heard with, beside their own.
template <class T>
struct lanes_to_hear {
  common_arrays<T> a;
  index position = 0;  // of the first query
  index pinned = 0;    // tokens at the front that are never given up
  index earlier = 0;   // slots before the first of the queries that are heard together

  __device__ view<const float, 2> keys_of(index kv_head, index count) const {
    return a.retained.keys_of(kv_head, count);
  }
  __device__ view<float> work_of(index head, index count) const { return a.retained.work_of(head, count); }
};

/// Lets queries be heard one after the other, a block for each query head.
template <class Retainer, class T, class Number, class Lanes>
__global__ void __launch_bounds__(keep_threads)
    hear_kernel(Retainer retain, observing_queries<T, Number> of, Lanes lanes) {
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  const auto head = static_cast<index>(blockIdx.x);
  const view<float> received = of.received[head];
  for (index t = block.thread(); t < of.held(); t += block.size())
    received[t] = t < of.known ? of.before(head, t) : 0.0f;
  for (index q = 0; q < of.count; ++q) {
    __syncthreads();
    const view<float, 2> group = lanes.a.retained.asked_of(head);
    for (index i = block.thread(); i < group.extent(0) * group.extent(1); i += block.size()) {
      const index g = i / group.extent(1);
      const index d = i % group.extent(1);
      group(g, d) = to_float(of.queries(of.row_of(q), head / of.group * of.group + g, d));
    }
    __syncthreads();
    const index seen = of.context + q;
    heard_query heard;
    heard.query = group[head % of.group];
    heard.keys = lanes.keys_of(head / of.group, seen);
    heard.position = lanes.position + q;
    heard.pinned = lanes.pinned;
    heard.work = lanes.work_of(head, seen);
    heard.group = group;
    heard.head = head % of.group;
    heard.earlier = lanes.earlier;
    hear(retain, heard, received, block);
  }
}

/// The lanes of one layer when tokens must be given up.
template <class T>
struct lanes_to_choose {
  common_arrays<T> a;
  view<const float, 2> received;  // [heads, slots]
  index scored = 0;               // the first so many slots compete
  index queries = 0;              // that were observed
  index first = 0;                // slots at the front that are kept in any case
  index* kept = nullptr;          // [kv_heads][stride]
  std::int64_t stride = 0;
  index kept_each = 0;

  __device__ lane_to_choose at(index kv_head) const {
    const shape& model = a.sizes.model;
    const index slots = received.extent(1);
    lane_to_choose lane;
    lane.seen.received = received.slice(kv_head * model.group(), (kv_head + 1) * model.group());
    if (a.retained.keys != nullptr) lane.seen.keys = a.retained.keys_of(kv_head, slots);
    lane.seen.scored = scored;
    lane.seen.queries = queries;
    lane.first = first;
    lane.importance = {a.retained.importance + std::int64_t{kv_head} * a.retained.tokens, {slots}};
    lane.kept = {kept + kv_head * stride, {kept_each}};
    return lane;
  }
};

/// What is left of some lanes of a sequence.
struct compacting {
  index sequence = 0;
  index first_lane = 0;
  const index* slots = nullptr;  // [lanes][stride]  that are kept, ascending
  std::int64_t stride = 0;
  index kept = 0;
  index half = 0;     // of the carried sums
  held_slots before;  // what the lanes held
};

inline constexpr index compact_threads = 256;

/// Moves numbers to the front of an array, tile by tile: what a tile of threads reads no earlier one has written, since
/// nothing moves to the back: read(i) is what moves to place i, write(i, value) puts it there.
template <class Read, class Write>
__device__ void move_forward(std::int64_t count, Read read, Write write) {
  for (std::int64_t first = 0; first < count; first += compact_threads) {
    const std::int64_t at = first + static_cast<index>(threadIdx.x);
    decltype(read(at)) value{};
    if (at < count) value = read(at);
    __syncthreads();
    if (at < count) write(at, value);
  }
}

/// Moves keys, values and carried sums of the slots that are kept to the front of each lane, a block for each, and
/// makes positions of their slots.
template <index HeadDim, class T>
__global__ void __launch_bounds__(compact_threads) compact_kernel(common_arrays<T> a, compacting of) {
  constexpr index pieces = HeadDim * static_cast<index>(sizeof(T)) / 16;  // of a key
  const auto lane = of.first_lane + static_cast<index>(blockIdx.x);
  const shape& model = a.sizes.model;
  const index layer = lane / model.kv_heads;
  const index kv_head = lane % model.kv_heads;
  const view<const index> pages = a.pages_of(of.sequence);
  const view<const index> slots{of.slots + blockIdx.x * of.stride, {of.kept}};
  const std::int64_t to_value = a.value_offset() / per_vector<T>;
  struct both {
    uint4 key;
    uint4 value;
  };
  const auto key_of = [&](index slot) {
    return a.key(layer, pages[slot / page_tokens], kv_head) + slot % page_tokens * HeadDim;
  };
  const auto place = [&](T* key, std::int64_t at) { return reinterpret_cast<uint4*>(key) + at % pieces; };
  move_forward(
      std::int64_t{of.kept} * pieces,
      [&](std::int64_t at) {
        const uint4* from = place(key_of(slots[static_cast<index>(at / pieces)]), at);
        return both{from[0], from[to_value]};
      },
      [&](std::int64_t at, const both& moved) {
        const auto slot = static_cast<index>(at / pieces);
        const auto put = [&](T* key) {
          uint4* to = place(key, at);
          to[0] = moved.key;
          to[to_value] = moved.value;
        };
        put(key_of(slot));
        T* copy = a.in_arena(key_of(slot), layer, pages[slot / page_tokens]);
        if (copy != nullptr) put(copy);
      });
  for (index g = 0; a.retained.carried_tokens > 0 && g < model.group(); ++g) {
    const view<float> sums =
        a.retained.sums_of(of.sequence, layer, of.half, a.retained.carried_tokens)[kv_head * model.group() + g];
    move_forward(
        of.kept, [&](std::int64_t at) { return sums[slots[static_cast<index>(at)]]; },
        [&](std::int64_t at, float sum) { sums[static_cast<index>(at)] = sum; });
  }
  const slot_map before = a.retained.slots_of(of.sequence, lane, of.before);
  const view<index> positions = a.retained.kept_of(of.sequence, lane, of.kept);
  move_forward(
      of.kept, [&](std::int64_t at) { return before.position_of(slots[static_cast<index>(at)]); },
      [&](std::int64_t at, index position) { positions[static_cast<index>(at)] = position; });
}

}  // namespace v0
}  // namespace zoomr

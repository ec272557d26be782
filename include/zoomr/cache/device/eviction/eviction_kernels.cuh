// SPDX-License-Identifier: Apache-2.0
// L6. The kernels of eviction beside those of observation.cuh: queries are remembered, keys copied for evictors that
// read them, importance updated by evictors that do so themselves, and what is kept moves together.
//
// But for `note` they read no table of a step: what to do is in their arguments, which the host computes while a prompt
// comes and in `commit`. So `note` alone can be part of a graph. Their order is that of the caller's stream
// (token_eviction.cuh).
#pragma once

#include <zoomr/cache/device/memory/layout.cuh>
#include <zoomr/core/device/vectors.cuh>

namespace zoomr::inline v0::detail {

/// Remembers the queries [tokens, heads, head_dim] of the tokens after the prompt in one layer, a token in each block.
/// Of a draft only the last `noted_tokens`: those before have the same places, and blocks come in any order. They are
/// not missed: the next eviction is at the end of the draft or later, and observes as many queries.
/// @cost  heads * head_dim floats written for each token
template <class T, class Number>
__global__ void note_kernel(common_arrays<T> a, index_t layer, view<const Number, 3> queries) {
  const auto t = static_cast<index_t>(blockIdx.x);
  if (t >= a.table.counts->tokens || a.table.tokens[t].prompt) return;
  const auto& token = a.table.tokens[t];
  const index_t same_place = t + a.eviction.noted_tokens;  // tokens of an item stand one after the other
  if (same_place < a.table.counts->tokens && a.table.tokens[same_place].sequence == token.sequence) return;
  const view<float, 2> to = a.eviction.noted_of(token.sequence, layer)[token.position % a.eviction.noted_tokens];
  for (auto i = static_cast<index_t>(threadIdx.x); i < to.extent(0) * to.extent(1);
       i += static_cast<index_t>(blockDim.x)) {
    const index_t head = i / to.extent(1);
    const index_t d = i % to.extent(1);
    to(head, d) = to_float(queries(token.row, head, d));
  }
}

/// Remembers until commit the last queries of a chunk of a prompt in one layer, a query in each block: query i of the
/// grid goes from row first_row + i of `queries` [tokens, heads, head_dim] to entry first + i of `chunk`.
/// @cost  heads * head_dim floats written for each query
template <class T, class Number>
__global__ void remember_chunk_kernel(common_arrays<T> a, index_t layer, view<const Number, 3> queries,
                                      index_t first_row, index_t first) {
  const auto query = static_cast<index_t>(blockIdx.x);
  const index_t dims = a.eviction.model.head_dim;
  const index_t numbers = a.eviction.model.heads * dims;
  float* const to = a.eviction.chunk + (first + query) * a.eviction.query_numbers() + std::int64_t{layer} * numbers;
  for (auto i = static_cast<index_t>(threadIdx.x); i < numbers; i += static_cast<index_t>(blockDim.x)) {
    to[i] = to_float(queries(first_row + query, i / dims, i % dims));
  }
}

/// Makes them part of a sequence: a query in each block, that of the token at position + i from entry first + i of
/// `chunk`, where all layers are by then, to its place in the ring `prompted`.
/// @cost  layers * heads * head_dim floats moved for each query
template <class T>
__global__ void commit_chunk_kernel(common_arrays<T> a, index_t sequence, index_t first, index_t position) {
  const auto query = static_cast<index_t>(blockIdx.x);
  const std::int64_t numbers = a.eviction.query_numbers();
  const float* const from = a.eviction.chunk + (first + query) * numbers;
  float* const to = a.eviction.prompted_of(sequence, 0)[(position + query) % a.eviction.prompt_tokens].data();
  for (std::int64_t i = threadIdx.x; i < numbers; i += blockDim.x) to[i] = from[i];
}

/// Copies the keys of the first `slots` slots of the KV lanes of a layer, times their scale, to where an evictor may
/// work in them; what it left there of the layer before is lost.
///
/// Grid: slots, which blocks take in turn if there are more; blockIdx.y is the KV head. A thread for each dimension.
/// @cost  slots * kv_heads * head_dim numbers read, as many floats written
template <index_t HeadDim, class T>
__global__ void copy_keys_kernel(common_arrays<T> a, index_t sequence, index_t layer, index_t slots, float key_scale) {
  const auto kv_head = static_cast<index_t>(blockIdx.y);
  const auto d = static_cast<index_t>(threadIdx.x);
  if (d >= HeadDim) return;
  const view<const index_t> pages = a.pages_of(sequence);
  const auto from = a.layer(layer).read_only();
  const view<float, 2> to = a.eviction.keys_of(kv_head, slots);
  for (auto slot = static_cast<index_t>(blockIdx.x); slot < slots; slot += static_cast<index_t>(gridDim.x)) {
    const std::int64_t at = from.offset(pool_slot(pages, slot, from.page_bits), kv_head);
    to(slot, d) = fused(to_float(from.keys[at + d]), key_scale, -0.0f);
  }
}

/// What the queries of a layer are observed with, beside their own: a copy of the arrays, for update_importance_kernel.
template <class T>
struct lanes_to_update {
  common_arrays<T> a;
  index_t position = 0;  // of the first query
  index_t earlier = 0;   // slots before the first of the queries that are observed together
  float scale = 0.0f;    // of q . k; 0: 1 / sqrt(head_dim)

  /// The copied keys.  [count, head_dim]
  __device__ view<const float, 2> keys_of(index_t kv_head, index_t count) const {
    return a.eviction.keys_of(kv_head, count);
  }
  /// Working memory of the evictor.  [count]
  __device__ view<float> work_of(index_t head, index_t count) const { return a.eviction.work_of(head, count); }
};

/// Observes queries one after the other, a block of `keep_threads` for each query head: received[head] becomes what it
/// was before, or 0 where nothing was, and what the evictor makes of it at each query.
///
/// A block writes only what belongs to its own head, so that blocks need not wait for each other. The barriers are for
/// the queries of the group, which the whole block copies and then reads. It comes after copy_keys_kernel.
/// @pre   the evictor reads keys
/// @cost  as the evictor's update_importance, for each query; count * group * head_dim floats copied
template <class Evictor, class T, class Number, class Lanes>
__global__ void __launch_bounds__(keep_threads)
    update_importance_kernel(Evictor evict, observing_queries<T, Number> batch, Lanes kv_lanes) {
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  const auto head = static_cast<index_t>(blockIdx.x);
  const view<float> received = batch.received[head];
  for (index_t t = block.thread(); t < batch.held(); t += block.size()) {
    received[t] = t < batch.known ? batch.before(head, t) : 0.0f;
  }
  for (index_t q = 0; q < batch.count; ++q) {
    __syncthreads();
    const view<float, 2> group = kv_lanes.a.eviction.asked_of(head);
    for (index_t i = block.thread(); i < group.extent(0) * group.extent(1); i += block.size()) {
      const index_t g = i / group.extent(1);
      const index_t d = i % group.extent(1);
      group(g, d) = to_float(batch.queries(batch.row_of(q), head / batch.group * batch.group + g, d));
    }
    __syncthreads();
    const index_t seen = batch.context + q;
    observed_query observed;
    observed.keys = kv_lanes.keys_of(head / batch.group, seen);
    observed.position = kv_lanes.position + q;
    observed.work = kv_lanes.work_of(head, seen);
    observed.group = group;
    observed.head = head % batch.group;
    observed.earlier = kv_lanes.earlier;
    observed.scale = kv_lanes.scale;
    observed.logits = batch.logits_of(head / batch.group * batch.group, batch.group);
    update_importance(evict, observed, received, block);
  }
}

/// The KV lanes of one layer when tokens must be evicted: an argument of choose_kept_kernel, by KV head. Importance and
/// copied keys are working memory of the block that rates.
template <class T>
struct kv_lanes_to_choose {
  common_arrays<T> a;
  view<const float, 2> received;  // [heads, slots]
  index_t scored = 0;             // the first so many slots compete
  index_t queries = 0;            // that were observed
  index_t first = 0;              // slots at the front that are kept in any case
  index_t* kept = nullptr;        // [kv_heads][stride]  out: ascending slots
  std::int64_t stride = 0;
  index_t kept_each = 0;  // so many are written for each KV lane

  __device__ kv_lane_to_choose at(index_t kv_head) const {
    const shape& model = a.sizes.model;
    const index_t slots = received.extent(1);
    kv_lane_to_choose kv_lane;
    kv_lane.seen.received = received.slice(kv_head * model.group(), (kv_head + 1) * model.group());
    if (a.eviction.keys != nullptr) kv_lane.seen.keys = a.eviction.keys_of(kv_head, slots);
    kv_lane.seen.scored = scored;
    kv_lane.seen.queries = queries;
    kv_lane.first = first;
    kv_lane.importance = {a.eviction.importance + std::int64_t{kv_head} * a.eviction.tokens, {slots}};
    kv_lane.kept = {kept + kv_head * stride, {kept_each}};
    return kv_lane;
  }
};

/// What is left of some KV lanes of a sequence.
struct compaction {
  index_t sequence = 0;
  index_t first_kv_lane = 0;
  const index_t* slots = nullptr;  // [KV lanes][stride]  that are kept, ascending
  std::int64_t stride = 0;
  index_t kept = 0;
  index_t half = 0;   // of the carried sums
  held_slots before;  // what the KV lanes held
};

inline constexpr index_t compact_threads = 256;

/// Moves numbers to the front of an array, tile by tile: what a tile of threads reads no earlier one has written, since
/// nothing moves to the back: read(i) is what moves to place i, write(i, value) puts it there. All `compact_threads`
/// threads of a block call it.
///
/// The one barrier of a tile stands between reading and writing. The next tile needs none before it reads, since all of
/// that is after what this one writes.
template <class Read, class Write>
__device__ void move_forward(std::int64_t count, Read read, Write write) {
  for (std::int64_t first = 0; first < count; first += compact_threads) {
    const std::int64_t at = first + static_cast<index_t>(threadIdx.x);
    decltype(read(at)) value{};
    if (at < count) value = read(at);
    __syncthreads();
    if (at < count) write(at, value);
  }
}

/// Moves keys, values and carried sums of the slots that are kept to the front of each KV lane, a block for each, and
/// makes positions of their slots.
///
/// Grid: KV lanes from `first_kv_lane` on; no shared memory. Threads move 16 bytes of a key, and of its value, at a
/// time. Over tiers pages are the host's, and copies in the arena are written as well (each_copy). Positions come last:
/// their table may be `slots` itself, by which keys, values and sums are found.
/// @cost  a key and a value read and written for each slot that is kept, and a float of each query head that carries
///        sums; one barrier for each 256 pieces that move
template <index_t HeadDim, class T>
__global__ void __launch_bounds__(compact_threads) compact_kernel(common_arrays<T> a, compaction task) {
  constexpr index_t pieces = HeadDim * static_cast<index_t>(sizeof(T)) / 16;  // of a key
  const auto kv_lane = task.first_kv_lane + static_cast<index_t>(blockIdx.x);
  const shape& model = a.sizes.model;
  const index_t layer = kv_lane / model.kv_heads;
  const index_t kv_head = kv_lane % model.kv_heads;
  const view<const index_t> pages = a.pages_of(task.sequence);
  const view<const index_t> slots{task.slots + blockIdx.x * task.stride, {task.kept}};
  const auto stored = a.layer(layer);
  const index_t value_pieces = model.stored_value_width() * static_cast<index_t>(sizeof(T)) / 16;  // at most `pieces`
  struct both {
    uint4 key;
    uint4 value;
  };
  const auto offset_of = [&](index_t slot) { return stored.offset(pool_slot(pages, slot, stored.page_bits), kv_head); };
  const auto piece = [&](T* row, std::int64_t at) -> uint4& { return reinterpret_cast<uint4*>(row)[at % pieces]; };
  const auto has_value = [&](std::int64_t at) { return at % pieces < value_pieces; };
  move_forward(
      std::int64_t{task.kept} * pieces,
      [&](std::int64_t at) {
        const std::int64_t from = offset_of(slots[static_cast<index_t>(at / pieces)]);
        return both{piece(stored.keys + from, at), has_value(at) ? piece(stored.values + from, at) : uint4{}};
      },
      [&](std::int64_t at, const both& moved) {
        const auto slot = static_cast<index_t>(at / pieces);
        a.each_copy(layer, pool_slot(pages, slot, stored.page_bits), kv_head, [&](T* key, T* value) {
          piece(key, at) = moved.key;
          if (has_value(at)) piece(value, at) = moved.value;
        });
      });
  for (index_t g = 0; a.eviction.carried_tokens > 0 && g < model.group(); ++g) {
    const view<float> sums =
        a.eviction.sums_of(task.sequence, layer, task.half, a.eviction.carried_tokens)[kv_head * model.group() + g];
    move_forward(
        task.kept, [&](std::int64_t at) { return sums[slots[static_cast<index_t>(at)]]; },
        [&](std::int64_t at, float sum) { sums[static_cast<index_t>(at)] = sum; });
  }
  const slot_map before = a.eviction.slots_of(task.sequence, kv_lane, task.before);
  const view<index_t> positions = a.eviction.kept_of(task.sequence, kv_lane, task.kept);
  move_forward(
      task.kept, [&](std::int64_t at) { return before.position_of(slots[static_cast<index_t>(at)]); },
      [&](std::int64_t at, index_t position) { positions[static_cast<index_t>(at)] = position; });
}

}  // namespace zoomr::inline v0::detail

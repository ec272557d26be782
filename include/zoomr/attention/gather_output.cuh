// SPDX-License-Identifier: Apache-2.0
// L4. The other end of gather.cuh: a block's states are merged from warps to blocks to outputs, in an order that
// depends on sizes alone.
//
// A state is [value width] sums of 2^(logit - max) * value, the maximum of the logits in units of ln 2, and the sum of
// the weights. It goes from registers to shared memory (`leave` of the warp), over the warps that have shared tokens,
// and with several splits through global memory to the block that comes last.
#pragma once

#include <zoomr/attention/token_list.cuh>
#include <zoomr/core/device/block.cuh>
#include <zoomr/core/device/vectors.cuh>
#include <zoomr/math/functions.hpp>
#include <zoomr/math/logits.hpp>

namespace zoomr::inline v0 {

/// Numbers of a head's state in global memory: the sums, then maximum, sum of the weights, and two unused ones, which
/// keep all states at 16 bytes.
ZOOMR_HD constexpr index_t state_numbers(index_t value_width) { return value_width + 4; }

/// What a launch of gather_attend works on. `Rows` is a device functor: `rows.at(i)` is an attending_row, `rows.count`
/// how many there are. It is the kernel's argument: it owns nothing.
template <class T, class Number, class Rows, class Logits, class Layer = stored_layer<T>>
struct gather_task {
  using number = Number;

  Layer layer;
  Rows rows;
  Logits logits;
  view<const Number, 3> queries;  // [tokens, heads, head_dim]  rotated
  view<Number, 3> out;            // [tokens, heads, value width]
  view<float, 2> lse;             // [tokens, heads]  natural; may be empty
  float key_scale = 1.0f;         // a key is what is stored times this
  float value_scale = 1.0f;
  float* partial = nullptr;     // [rows, splits, group, state_numbers(value width)]  at 16 bytes; unused with one split
  unsigned* arrived = nullptr;  // [rows, head blocks]  zero before, and after
};

/// Logits of the task may have a bias by distance.
template <class Task>
concept has_slopes = requires(const Task& task) {
  task.logits.slopes;
};

/// The stretch of a row that one block reads.
struct gather_stretch {
  index_t first = 0;
  index_t tokens = 0;
  index_t splits = 1;  // blocks that have a stretch
};

/// A stretch has as many tiles or more: with fewer, blocks would be busy with each other's states.
inline constexpr index_t least_tiles = 4;

/// Equal stretches, in whole tiles; a row without tokens has one empty stretch, whose block writes its zeros. How they
/// are depends on the row alone, not on what else is in a batch. `split` is the block's number among `splits`; one at
/// or after the result's `splits` has nothing to read.
__device__ inline gather_stretch stretch_of(index_t tokens, index_t tile, index_t split, index_t splits) {
  if (tokens == 0) return {0, 0, 1};
  const index_t tiles = (tokens + splits * tile - 1) / (splits * tile);
  const index_t length = (tiles < least_tiles ? least_tiles : tiles) * tile;
  const index_t first = split * length;
  const index_t left = tokens - first;
  return {first, left < length ? left : length, (tokens + length - 1) / length};
}

/// What one block works on, and what it does with the states of its warps. A head is counted from the first of the
/// block, except where a comment has "of the row": there the query tokens of a tile follow one another, each with all
/// heads.
template <class Warp, class Values, index_t Group, class Task, class Row>
struct gather_output {
  using layout = typename Warp::layout;
  using number = typename Task::number;
  static constexpr index_t ring = 3;  // tiles whose places have been found
  static constexpr index_t width = Values::width;
  static constexpr bool shares = query_tile<decltype(Row::tokens)>;
  /// A bias by distance is possible, and the list has the places of tokens in their sequence.
  static constexpr bool biased = has_slopes<Task> && requires(const Row& row) { row.tokens.sequence_slot(index_t{}); };

  /// Pieces of 16 bytes of two tiles, and of the states that are left in their place.
  static constexpr index_t stage_pieces = 2 * (layout::stage + layout::value_stage);
  static constexpr index_t state_pieces = layout::token_parts * layout::block_heads * width / 4;

  /// The block's shared memory. The stages are no longer read when the states are left there.
  struct memory {
    // [2][keys | values][tile][pieces]; then [warps, heads, value width]
    shared_array<uint4, (stage_pieces > state_pieces ? stage_pieces : state_pieces)> stages;
    shared_array<float, layout::product_numbers> products;
    shared_array<std::int64_t, ring * layout::tile> places;  // of keys, in numbers from the layer's first
    shared_array<unsigned, shares ? ring * layout::tile : 1> attending;
    shared_array<index_t, biased ? ring * layout::tile : 1> positions;
    shared_array<float, 2 * layout::token_parts * layout::block_heads> ends;  // [warps, heads][max | sum]
    shared_array<index_t, 1> last;
  };

  const Task& task;
  const Row& row;
  memory& shared;
  gather_stretch stretch;
  index_t head_block;

  /// Heads of the row: of each of its query tokens.
  __device__ index_t heads() const { return shares ? row.sharing * row.heads : row.heads; }
  /// Whose they are: packed tokens, and heads of the model.
  __device__ index_t token_of(index_t head) const { return shares ? row.token + head / row.heads : row.token; }
  __device__ index_t head_of(index_t head) const { return row.first_head + (shares ? head % row.heads : head); }

  /// Where the warp that took part `part` of the tokens for a head of the block has left its state.
  __device__ static index_t left_at(index_t head, index_t part) {
    return (part * layout::head_parts + head / layout::heads) * layout::heads + head % layout::heads;
  }

  /// The state of four dimensions of one head.
  struct four_dims {
    float max = -infinity;
    float sum = 0.0f;
    float out[4] = {};
  };

  /// The states of some parts as one, in ascending order. `ends(i)` is a part's maximum and its sum, `numbers(i)` four
  /// numbers of its output.
  template <class Ends, class Numbers>
  __device__ static four_dims merged(index_t parts, Ends ends, Numbers numbers) {
    four_dims merged_state;
    for (index_t i = 0; i < parts; ++i) merged_state.max = quick_max(merged_state.max, ends(i).x);
    const float base = merged_state.max == -infinity ? 0.0f : merged_state.max;
    for (index_t i = 0; i < parts; ++i) {
      const float2 end = ends(i);
      const float4 four = numbers(i);
      const float scale = quick_exp2(end.x - base);
      merged_state.sum = fused(scale, end.y, merged_state.sum);
      const float out[] = {four.x, four.y, four.z, four.w};
      for (index_t j = 0; j < 4; ++j) merged_state.out[j] = fused(scale, out[j], merged_state.out[j]);
    }
    return merged_state;
  }

  /// What the block's warps have left of a head, from dimension `d` on.
  __device__ four_dims of_block(index_t head, index_t d) {
    return merged(
        layout::token_parts,
        [&](index_t part) {
          const index_t at = 2 * left_at(head, part);
          return make_float2(shared.ends[at], shared.ends[at + 1]);
        },
        [&](index_t part) {
          const uint4 four = shared.stages[(left_at(head, part) * width + d) / 4];
          return bits_as<float4>(four);
        });
  }

  /// What all splits have left of a head, from dimension `d` on.
  __device__ four_dims of_splits(index_t head, index_t d) const {
    return merged(
        stretch.splits,
        [&](index_t split) { return load_shared_by_blocks(reinterpret_cast<float2*>(partial(split, head) + width)); },
        [&](index_t split) { return load_shared_by_blocks(reinterpret_cast<float4*>(partial(split, head) + d)); });
  }

  /// Where a split of this row keeps its state of a head.
  __device__ float* partial(index_t split, index_t head) const {
    const std::int64_t state =
        (std::int64_t{blockIdx.x} * gridDim.y + split) * Group + head_block * layout::block_heads + head;
    return task.partial + state * state_numbers(width);
  }

  /// Adds a learned sink, a token whose value is zero.
  /// @param sink  in units of ln 2; -inf: none
  __device__ static void add_sink(four_dims& state, float sink) {
    if (sink == -infinity) return;
    const float most = quick_max(state.max, sink);
    const float scale = quick_exp2(state.max - most);
    state.sum = fused(scale, state.sum, quick_exp2(sink - most));
    for (index_t j = 0; j < 4; ++j) state.out[j] *= scale;
    state.max = most;
  }

  /// Writes dimensions [d, d + 4) of a head's output, rounded to the type of queries, and with the first of them its
  /// lse, natural. Where no token is attended, zeros and -inf; a sink counts in both.
  __device__ void finish(index_t head, index_t d, four_dims state) const {
    const index_t of_row = head_block * layout::block_heads + head;
    const index_t token = token_of(of_row);
    const index_t of_model = head_of(of_row);
    if constexpr (requires { task.logits.sink(of_model); }) add_sink(state, task.logits.sink(of_model));
    const float scale = state.sum == 0.0f ? 0.0f : task.value_scale / state.sum;
    for (index_t j = 0; j < 4; ++j) task.out(token, of_model, d + j) = from_float<number>(state.out[j] * scale);
    if (d != 0 || task.lse.data() == nullptr) return;
    task.lse(token, of_model) = state.sum == 0.0f ? -infinity : fused(state.max, ln_2, logarithm(state.sum));
  }

  /// Keeps the same dimensions of this split's state for the block that comes last.
  __device__ void keep(index_t head, index_t d, const four_dims& state) const {
    float* to = partial(static_cast<index_t>(blockIdx.y), head);
    const float* out = state.out;
    store_shared_by_blocks(reinterpret_cast<float4*>(to + d), make_float4(out[0], out[1], out[2], out[3]));
    if (d == 0) store_shared_by_blocks(reinterpret_cast<float2*>(to + width), make_float2(state.max, state.sum));
  }

  /// body(head of the block, dimension), shared out over the threads, four dimensions at a time; only of heads that the
  /// row has.
  template <class Body>
  __device__ void each_output(Body body) const {
    constexpr index_t of_head = width / 4;
    for (auto i = static_cast<index_t>(threadIdx.x); i < layout::block_heads * of_head; i += layout::threads) {
      const index_t head = i / of_head;
      if (head_block * layout::block_heads + head < heads()) body(head, i % of_head * 4);
    }
  }

  /// Makes outputs of what the warps have left; of several splits, in the block that comes last.
  /// All threads call it, after a barrier that follows `leave`.
  __device__ void write() {
    if (stretch.splits == 1) {
      each_output([&](index_t head, index_t d) { finish(head, d, of_block(head, d)); });
      return;
    }
    each_output([&](index_t head, index_t d) { keep(head, d, of_block(head, d)); });
    // Which block comes last changes no bits: it merges all of them in ascending order.
    unsigned* arrived = task.arrived + blockIdx.x * gridDim.z + blockIdx.z;
    if (comes_last(arrived, stretch.splits, shared.last))
      each_output([&](index_t head, index_t d) { finish(head, d, of_splits(head, d)); });
  }
};

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of gather.hpp: exact attention over the chosen tokens, split over blocks, each key and value read
// once for all query heads that share it.
//
// A block takes a stretch of one row's tokens, tile after tile: keys and values come by asynchronous copies, one tile
// ahead. Lanes share a token's dimensions, groups of lanes take tokens, warps take tokens or, for large groups, heads
// (gather_warp.cuh); large groups of 16-bit queries are multiplied on tensor cores (gather_tensor.cuh).
// States are merged from lanes to warps to splits, in an order that depends on sizes alone.
#pragma once

#include <zoomr/attend/gather.hpp>
#include <zoomr/attend/gather_tensor.cuh>
#include <zoomr/attend/gather_warp.cuh>
#include <zoomr/attend/token_list.cuh>
#include <zoomr/math/logits.hpp>

#include <type_traits>  // std::conditional_t

namespace zoomr {
inline namespace v0 {

/// What a launch of gather_attend works on. `Rows` is a device functor: `rows.at(i)` is an attending_row, `rows.count`
/// how many there are.
template <class T, class Number, class Rows, class Logits, class Layer = stored_layer<T>>
struct gather_task {
  using number = Number;

  Layer layer;
  Rows rows;
  Logits logits;
  view<const Number, 3> queries;  // [tokens, heads, head_dim]  rotated
  view<Number, 3> out;            // [tokens, heads, head_dim]
  view<float, 2> lse;             // [tokens, heads]  natural; may be empty
  float key_scale = 1.0f;         // a key is what is stored times this
  float value_scale = 1.0f;
  float* partial = nullptr;     // [rows, splits, group, head_dim + 2]  unused with one split
  unsigned* arrived = nullptr;  // [rows, head blocks]  zero before, and after
};

/// The stretch of a row that one block reads.
struct gather_stretch {
  index first = 0;
  index tokens = 0;
  index splits = 1;  // blocks that have a stretch
};

/// Equal stretches, in whole tiles; a row without tokens has one empty stretch.
__device__ inline gather_stretch stretch_of(index tokens, index tile, index split, index splits) {
  const index each = (tokens + splits * tile - 1) / (splits * tile) * tile;
  if (each == 0) return {0, 0, 1};
  const index first = split * each;
  const index left = tokens - first;
  return {first, left < each ? left : each, (tokens + each - 1) / each};
}

/// Everything that one block does.
template <class Warp, index HeadDim, index Group, class Task, class Row>
struct gather_block {
  using layout = typename Warp::layout;
  using number = typename Task::number;
  static constexpr index ring = 3;  // tiles whose slots are known

  struct memory {
    shared_array<uint4, 4 * layout::stage> stages;  // [2][keys | values][tile][pieces]; then [warps, heads, head_dim]
    shared_array<index, ring * layout::tile> slots;
    shared_array<float, 2 * layout::token_parts * layout::block_heads> ends;  // [warps, heads][max | sum]
    shared_array<index, 1> last;
  };

  const Task& task;
  const Row& row;
  memory& shared;
  gather_stretch stretch;
  index head_block;

  __device__ index tiles() const { return (stretch.tokens + layout::tile - 1) / layout::tile; }
  __device__ index tokens_of(index tile) const {
    const index left = stretch.tokens - tile * layout::tile;
    return left < layout::tile ? left : layout::tile;
  }
  __device__ static index keys_of(index tile) { return tile % 2 * 2 * layout::stage; }
  __device__ static index values_of(index tile) { return keys_of(tile) + layout::stage; }

  /// Finds the slots of a tile.
  __device__ void find(index tile) {
    if (tile >= tiles()) return;
    for (auto t = static_cast<index>(threadIdx.x); t < tokens_of(tile); t += layout::threads) {
      shared.slots[tile % ring * layout::tile + t] = row.tokens.slot(stretch.first + tile * layout::tile + t);
    }
  }

  /// Starts copying a tile, whose slots are found. Warps that read whole tiles find zeros after the last token.
  __device__ void copy(index tile) {
    if (tile < tiles()) {
      const index tokens = tokens_of(tile);
      const index all = layout::reads_whole_tiles ? layout::stage : tokens * layout::pieces;
      for (auto i = static_cast<index>(threadIdx.x); i < all; i += layout::threads) {
        const index token = i / layout::pieces;
        const index piece = i % layout::pieces;
        const index place = keys_of(tile) + layout::place(token, piece);
        if (layout::reads_whole_tiles && token >= tokens) {
          shared.stages[place] = uint4{};
          shared.stages[place + layout::stage] = uint4{};
          continue;
        }
        const index slot = shared.slots[tile % ring * layout::tile + token];
        const std::int64_t offset = task.layer.offset(slot, row.kv_head) + std::int64_t{piece} * layout::per_piece;
        copy_async(shared.stages[place], reinterpret_cast<const uint4*>(task.layer.keys + offset));
        copy_async(shared.stages[place + layout::stage], reinterpret_cast<const uint4*>(task.layer.values + offset));
      }
    }
    copy_async_commit();
  }

  /// Reads all tiles, each while the next one is on its way.
  __device__ void read_all(Warp& warp) {
    find(0);
    find(1);
    __syncthreads();
    copy(0);
    for (index tile = 0; tile < tiles(); ++tile) {
      copy(tile + 1);
      find(tile + 2);
      copy_async_wait<1>();
      __syncthreads();
      warp.add_tile(shared.stages, keys_of(tile), values_of(tile), tokens_of(tile), task.logits);
      __syncthreads();
    }
    copy_async_wait<0>();
  }

  /// Where the warp that took part `part` of the tokens for a head of the block has left its state.
  __device__ static index left_at(index head, index part) {
    return (part * layout::head_parts + head / layout::heads) * layout::heads + head % layout::heads;
  }

  /// The state of four dimensions of one head.
  struct four_dims {
    float max = -infinity;
    float sum = 0.0f;
    float out[4] = {};
  };

  /// The states of some parts as one, in ascending order. `ends(i, 0)` is a part's maximum, `ends(i, 1)` its sum,
  /// `numbers(i, j)` number j of its output.
  template <class Ends, class Numbers>
  __device__ static four_dims merged(index parts, Ends ends, Numbers numbers) {
    four_dims all;
    for (index i = 0; i < parts; ++i) all.max = fmaxf(all.max, ends(i, 0));
    const float base = all.max == -infinity ? 0.0f : all.max;
    for (index i = 0; i < parts; ++i) {
      const float scale = quick_exp2(ends(i, 0) - base);
      all.sum = fused(scale, ends(i, 1), all.sum);
      for (index j = 0; j < 4; ++j) all.out[j] = fused(scale, numbers(i, j), all.out[j]);
    }
    return all;
  }

  /// What the block's warps have left of a head, from dimension `d` on.
  __device__ four_dims of_block(index head, index d) {
    return merged(
        layout::token_parts,
        [&](index part, index end) { return static_cast<float>(shared.ends[2 * left_at(head, part) + end]); },
        [&](index part, index j) {
          const uint4 four = shared.stages[(left_at(head, part) * HeadDim + d) / 4];
          return bits_as<float>(j == 0 ? four.x : j == 1 ? four.y : j == 2 ? four.z : four.w);
        });
  }

  /// What all splits have left of a head, from dimension `d` on.
  __device__ four_dims of_splits(index head, index d) const {
    return merged(
        stretch.splits,
        [&](index split, index end) { return load_shared_by_blocks(partial(split, head) + HeadDim + end); },
        [&](index split, index j) { return load_shared_by_blocks(partial(split, head) + d + j); });
  }

  __device__ float* partial(index split, index head) const {
    const std::int64_t state =
        (std::int64_t{blockIdx.x} * gridDim.y + split) * Group + head_block * layout::block_heads + head;
    return task.partial + state * (HeadDim + 2);
  }

  __device__ void finish(index head, index d, const four_dims& state) const {
    const index of_model = row.first_head + head_block * layout::block_heads + head;
    const float scale = state.sum == 0.0f ? 0.0f : task.value_scale / state.sum;
    for (index j = 0; j < 4; ++j) task.out(row.token, of_model, d + j) = from_float<number>(state.out[j] * scale);
    if (d != 0 || task.lse.data() == nullptr) return;
    task.lse(row.token, of_model) = state.sum == 0.0f ? -infinity : fused(state.max, ln_2, logarithm(state.sum));
  }

  __device__ void keep(index head, index d, const four_dims& state) const {
    float* to = partial(static_cast<index>(blockIdx.y), head);
    for (index j = 0; j < 4; ++j) to[d + j] = state.out[j];
    if (d != 0) return;
    to[HeadDim] = state.max;
    to[HeadDim + 1] = state.sum;
  }

  /// body(head of the block, dimension), shared out over the threads, four dimensions at a time.
  template <class Body>
  __device__ void each_output(Body body) const {
    constexpr index of_head = HeadDim / 4;
    for (auto i = static_cast<index>(threadIdx.x); i < layout::block_heads * of_head; i += layout::threads) {
      const index head = i / of_head;
      if (head_block * layout::block_heads + head < row.heads) body(head, i % of_head * 4);
    }
  }

  /// True in the block that comes last of those with a stretch of this row: it sees what all have kept.
  __device__ bool comes_last() {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned* arrived = task.arrived + blockIdx.x * gridDim.z + blockIdx.z;
      const bool last = atomicAdd(arrived, 1u) + 1 == static_cast<unsigned>(stretch.splits);
      if (last) *arrived = 0;
      shared.last[0] = last ? 1 : 0;
    }
    __syncthreads();
    __threadfence();
    return shared.last[0] != 0;
  }

  __device__ void run() {
    {
      Warp warp;
      const index first = head_block * layout::block_heads + warp.head_part() * layout::heads;
      const index present = row.heads - first;
      warp.begin(&task.queries(row.token, row.first_head + (present > 0 ? first : 0), 0), present,
                 task.logits.of_query() * task.key_scale);
      read_all(warp);
      warp.merge_lanes();
      warp.leave(shared.stages, shared.ends);
    }
    __syncthreads();
    if (stretch.splits == 1) {
      each_output([&](index head, index d) { finish(head, d, of_block(head, d)); });
      return;
    }
    each_output([&](index head, index d) { keep(head, d, of_block(head, d)); });
    if (comes_last()) each_output([&](index head, index d) { finish(head, d, of_splits(head, d)); });
  }
};

/// How a warp works follows from the types: on tensor cores where they pay.
template <class T, class Number, index HeadDim, index Group>
using warp_that_gathers = std::conditional_t<fits_tensor_cores<T, Number, HeadDim, Group>(),
                                             tensor_warp<T, Number, HeadDim, Group>, gather_warp<T, HeadDim, Group>>;

template <class T, index HeadDim, index Group, class Task>
__global__ void __launch_bounds__(warp_that_gathers<T, typename Task::number, HeadDim, Group>::layout::threads)
    gather_attend_kernel(Task task) {
  using warp = warp_that_gathers<T, typename Task::number, HeadDim, Group>;
  using layout = typename warp::layout;
  const auto row = task.rows.at(static_cast<index>(blockIdx.x));
  using block = gather_block<warp, HeadDim, Group, Task, decltype(row)>;
  const gather_stretch stretch =
      stretch_of(row.tokens.count(), layout::tile, static_cast<index>(blockIdx.y), static_cast<index>(gridDim.y));
  if (row.heads == 0 || static_cast<index>(blockIdx.y) >= stretch.splits) return;
  __shared__ typename block::memory shared;
  block{task, row, shared, stretch, static_cast<index>(blockIdx.z)}.run();
}

/// Attends: for each row the heads of one KV head over the row's tokens.
///
/// With queries of 16 bits, a Group of 8 or more, and keys and values of the same type or of 8 bits, tensor cores
/// multiply. Weights are then rounded to the type of queries before they meet values, which moves `out` by up to 2^-8
/// (bfloat16) or 2^-11 (float16) of the largest |value|; `lse` stays as exact as it is.
///
/// @tparam HeadDim  64, 96, 128 or 256, as a rule: a key is a multiple of 16 bytes
/// @tparam Group    query heads of a row, at most
/// @param  splits   blocks that may share a row; with more than one, `task.partial` and `task.arrived` are used
/// @cost   2 * HeadDim numbers read for each token of a row and each head block; one launch
template <class T, index HeadDim, index Group, class Number, class Rows, class Logits, class Layer>
void gather_attend(const gather_task<T, Number, Rows, Logits, Layer>& task, index splits, stream on) {
  using layout = typename warp_that_gathers<T, Number, HeadDim, Group>::layout;
  using block_task = gather_task<T, Number, Rows, Logits, Layer>;
  static_assert(layout::head_blocks <= gather_layout<T, HeadDim, Group>::head_blocks, "the workspace is for these");
  ZOOMR_EXPECTS(splits >= 1 && splits < 65536, "gather_attend: splits must lie in 1 ... 65535");
  ZOOMR_EXPECTS(splits == 1 || (task.partial != nullptr && task.arrived != nullptr),
                "gather_attend: several splits need `partial` and `arrived`");
  if (task.rows.count == 0) return;
  const dim3 grid(static_cast<unsigned>(task.rows.count), static_cast<unsigned>(splits), layout::head_blocks);
  launch({grid, dim3(layout::threads)}, on, gather_attend_kernel<T, HeadDim, Group, block_task>, task);
}

/// Bytes of `partial` and `arrived` for so many rows.
template <class T, index HeadDim, index Group>
constexpr byte_count gather_workspace_bytes(index rows, index splits) {
  const byte_count states = splits > 1 ? byte_count{rows} * splits * Group * (HeadDim + 2) : 0;
  return states * 4 + byte_count{rows} * gather_layout<T, HeadDim, Group>::head_blocks * 4;
}

}  // namespace v0
}  // namespace zoomr

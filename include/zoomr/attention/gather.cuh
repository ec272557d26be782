// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of gather.hpp: exact attention over the chosen tokens, split over blocks, each key and value read
// once for all query heads that share it.
//
// A block takes a stretch of one row's tokens, tile after tile: keys and values come by asynchronous copies, one tile
// ahead. Threads share a token's dimensions, groups of threads take tokens, warps take tokens or, for large groups,
// heads (gather_warp.cuh); large groups of 16-bit queries are multiplied on tensor cores (gather_tensor.cuh). States
// are merged from threads to warps to splits, in an order that depends on sizes alone.
//
// Grid: x is the row, y the split of its tokens, z the block of its heads. Logits are in units of ln 2 here, weights
// powers of 2. Lists, queries and pages must have been written by work that the stream comes after; splits of a row
// are ordered by a counter alone: the last of them sees by it that the others are done.
#pragma once

#include <zoomr/attention/gather.hpp>
#include <zoomr/attention/gather_output.cuh>
#include <zoomr/attention/gather_tensor.cuh>
#include <zoomr/attention/gather_warp.cuh>

#include <type_traits>  // std::conditional_t

namespace zoomr::inline v0 {

/// Everything that one block does. While a tile is added, the next one is copied and the tokens of the one after that
/// are looked up: so their places are in a ring of three tiles, keys and values in two stages.
template <class Warp, class Values, index_t Group, class Task, class Row>
struct gather_block : gather_output<Warp, Values, Group, Task, Row> {
  using base = gather_output<Warp, Values, Group, Task, Row>;
  using layout = typename Warp::layout;
  using base::ring, base::task, base::row, base::shared, base::stretch, base::head_block;
  static constexpr bool shares = base::shares;
  static constexpr bool biased = base::biased;

  /// Tiles of the block's stretch, and the tokens of one of them: `layout::tile`, or what is left for the last.
  __device__ index_t tiles() const { return (stretch.tokens + layout::tile - 1) / layout::tile; }
  __device__ index_t tokens_of(index_t tile) const {
    const index_t left = stretch.tokens - tile * layout::tile;
    return left < layout::tile ? left : layout::tile;
  }
  /// Where a tile's keys and values begin in `shared.stages`: even and odd tiles take turns.
  __device__ static index_t keys_of(index_t tile) { return tile % 2 * (layout::stage + layout::value_stage); }
  __device__ static index_t values_of(index_t tile) { return keys_of(tile) + (Values::in_keys ? 0 : layout::stage); }

  /// Where a tile's token has its place and bits.
  __device__ static index_t known(index_t tile, index_t token) { return tile % ring * layout::tile + token; }

  /// Finds where the keys of a tile are, and who attends to them; of none after the last. A barrier must follow.
  /// @cost  one look-up in the row's list for each token: O(log ranges)
  __device__ void find(index_t tile) {
    if (tile >= tiles()) return;
    for (auto t = static_cast<index_t>(threadIdx.x); t < tokens_of(tile); t += layout::threads) {
      const index_t at = stretch.first + tile * layout::tile + t;
      if constexpr (shares) {
        const shared_token found = row.tokens.shared(at);
        shared.places[known(tile, t)] = task.layer.offset(found.slot, row.kv_head);
        shared.attending[known(tile, t)] = found.attending;
      } else {
        shared.places[known(tile, t)] = task.layer.offset(row.tokens.slot(at), row.kv_head);
      }
      if constexpr (biased) shared.positions[known(tile, t)] = row.slots.position_of(row.tokens.sequence_slot(at));
    }
  }

  /// A token's value has so many pieces of its own.
  __device__ static bool has_value_piece(index_t piece) {
    return !Values::in_keys && (layout::value_pieces == layout::pieces || piece < layout::value_pieces);
  }
  /// Where a piece of a tile's key is copied, and one of its value.
  __device__ static index_t key_place(index_t tile, index_t token, index_t piece) {
    return keys_of(tile) + layout::place(layout::pieces, token, piece);
  }
  __device__ static index_t value_place(index_t tile, index_t token, index_t piece, index_t of_key) {
    if (Values::in_keys) return of_key;
    if (layout::value_row == layout::pieces) return of_key + layout::stage;
    return values_of(tile) + layout::place(layout::value_row, token, piece);
  }
  /// Starts copying one piece of a token's key and value.
  __device__ void copy_piece(index_t tile, index_t token, index_t piece) {
    const index_t key = key_place(tile, token, piece);
    const std::int64_t offset = shared.places[known(tile, token)];
    copy_piece(key, value_place(tile, token, piece, key), piece, offset, piece);
  }
  /// @param key, value  where to
  /// @param ahead       pieces from `offset` on
  __device__ void copy_piece(index_t key, index_t value, index_t piece, std::int64_t offset, index_t ahead) {
    const std::int64_t from = offset + ahead * layout::per_piece;
    copy_async(shared.stages[key], reinterpret_cast<const uint4*>(task.layer.keys + from));
    if (!has_value_piece(piece)) return;
    copy_async(shared.stages[value], reinterpret_cast<const uint4*>(task.layer.values + from));
  }
  /// Starts copying a tile, whose places are found. Warps that read whole tiles find zeros after the last token. A
  /// batch is closed after the last tile too, so that batches can be counted.
  __device__ void copy(index_t tile) {
    constexpr index_t pieces = layout::pieces;
    // each thread has the same piece of some tokens, or some pieces of the same token; else any
    constexpr bool same_piece = layout::threads % pieces == 0 && layout::stage % layout::threads == 0;
    constexpr index_t at_once = same_piece ? layout::threads / pieces : 1;                                  // tokens
    constexpr index_t of_token = layout::threads % layout::tile == 0 ? layout::threads / layout::tile : 0;  // threads
    const auto thread = static_cast<index_t>(threadIdx.x);
    if (same_piece && (tile + 1) * layout::tile <= stretch.tokens) {  // all tokens are there
#pragma unroll
      for (index_t i = 0; i < layout::stage / layout::threads; ++i) {
        copy_piece(tile, i * at_once + thread / pieces, thread % pieces);
      }
    } else if (!same_piece && of_token >= 8 && of_token % 8 == 0 && (tile + 1) * layout::tile <= stretch.tokens) {
      // what is flipped in the number of a piece is below 8
      constexpr index_t step = of_token > 0 ? of_token : 1;
      const index_t token = thread / step, own = thread % step;
      const std::int64_t offset = shared.places[known(tile, token)] + own * layout::per_piece;
      const index_t key = key_place(tile, token, own), value = value_place(tile, token, own, key);
#pragma unroll
      for (index_t first = 0; first < pieces; first += step) {
        if (pieces % step == 0 || first + own < pieces)
          copy_piece(key + first, value + first, first + own, offset, first);
      }
    } else if (tile < tiles()) {
      const index_t tokens = tokens_of(tile);
      const index_t copies = layout::reads_whole_tiles ? layout::stage : tokens * pieces;
#pragma unroll 1
      for (index_t i = thread; i < copies; i += layout::threads) {
        if (i / pieces < tokens) {
          copy_piece(tile, i / pieces, i % pieces);
          continue;
        }
        const index_t key = key_place(tile, i / pieces, i % pieces);
        shared.stages[key] = uint4{};
        if (has_value_piece(i % pieces)) shared.stages[value_place(tile, i / pieces, i % pieces, key)] = uint4{};
      }
    }
    copy_async_commit();
  }

  /// From products to logits, for the tokens of a tile.
  struct tile_logits {
    const gather_block& block;
    index_t tile;

    /// What the bias of one head of the block goes by: of a row without any, nothing is added.
    struct of_head {
      float slope = 0.0f;    // in units of ln 2
      index_t position = 0;  // of its query
    };
    __device__ of_head head(index_t head) const {
      if constexpr (biased) {
        const index_t of_row = block.head_block * layout::block_heads + head;
        if (block.task.logits.slopes == nullptr || of_row >= block.heads()) return {};
        return {block.task.logits.slopes[block.head_of(of_row)] * log2_of_e,
                block.row.position + (shares ? of_row / block.row.heads : 0)};
      } else {
        return {};
      }
    }
    /// @param product  as `begin` of the warp has scaled it
    __device__ float operator()(float product, index_t token, const of_head& bias) const {
      const float logit = block.task.logits(product);
      if constexpr (biased) {
        return fused(bias.slope, static_cast<float>(block.shared.positions[known(tile, token)] - bias.position), logit);
      } else {
        return logit;
      }
    }
  };

  /// Adds a tile that has come to the states in the warps' registers.
  __device__ void add(Warp& warp, index_t tile) {
    const tile_logits logits{*this, tile};
    if constexpr (shares) {
      const auto attended = [&](index_t token, unsigned mask) {
        return (shared.attending[known(tile, token)] & mask) != 0;
      };
      warp.add_tile(shared.stages, shared.products, keys_of(tile), values_of(tile), tokens_of(tile), logits, attended);
    } else {
      warp.add_tile(shared.stages, shared.products, keys_of(tile), values_of(tile), tokens_of(tile), logits,
                    attended_by_all{});
    }
  }

  /// Reads all tiles, each while the next one is on its way. All threads call it.
  /// @cost  2 barriers for each tile, 3 where warps share tokens
  __device__ void read_all(Warp& warp) {
    find(0);
    find(1);
    __syncthreads();
    copy(0);
    for (index_t tile = 0; tile < tiles(); ++tile) {
      copy(tile + 1);
      find(tile + 2);
      // This thread's pieces of `tile` are here, those of the next one may not be; the barrier adds the other threads'.
      copy_async_wait<1>();
      __syncthreads();
      add(warp, tile);
      // The next turn copies over this stage, and finds places where those of this tile are.
      __syncthreads();
    }
    copy_async_wait<0>();
  }

  /// The whole of the block's work. All threads call it.
  __device__ void run() {
    {  // the warp's registers are free before outputs are written
      Warp warp;
      const index_t first = head_block * layout::block_heads + warp.head_part() * layout::heads;
      const auto query = [&](index_t head) {
        return &task.queries(base::token_of(first + head), base::head_of(first + head), 0);
      };
      warp.begin(query, base::heads() - first, task.logits.of_query() * task.key_scale);
      if constexpr (shares) warp.remember_tokens(first, row.heads);
      read_all(warp);
      warp.merge_lanes();
      warp.leave(shared.stages, shared.ends);
    }
    __syncthreads();
    base::write();
  }
};

/// How a warp works follows from the types: on tensor cores where they pay.
template <class T, class Number, index_t HeadDim, index_t Group, class Values = values_apart<HeadDim>>
using warp_that_gathers =
    std::conditional_t<fits_tensor_cores<T, Number, HeadDim, Group, Values>(),
                       tensor_warp<T, Number, HeadDim, Group, Values>, gather_warp<T, HeadDim, Group, Values>>;

/// Blocks of an SM that registers must suffice for; 0: what the compiler likes. Under a bias it would like so many that
/// it spills; where warps share latents, so few that too little would be under way.
template <class Layout, class Task>
inline constexpr int gather_blocks_of_sm = has_slopes<Task>                                          ? 2
                                           : Layout::product_numbers > 1 && Layout::value_stage == 0 ? 3
                                                                                                     : 0;

/// Grid (rows, splits, head blocks); `layout::threads` threads. Blocks of a row without heads, and those for which no
/// tokens are left, end at once: so a grid may be larger than what there is to do. @see gather_attend
template <class T, index_t HeadDim, index_t Group, class Task, class Values = values_apart<HeadDim>>
__global__ void __launch_bounds__(
    warp_that_gathers<T, typename Task::number, HeadDim, Group, Values>::layout::threads,
    gather_blocks_of_sm<typename warp_that_gathers<T, typename Task::number, HeadDim, Group, Values>::layout, Task>)
    gather_attend_kernel(Task task) {
  using warp = warp_that_gathers<T, typename Task::number, HeadDim, Group, Values>;
  using layout = typename warp::layout;
  wait_for_earlier_launches();
  const auto row = task.rows.at(static_cast<index_t>(blockIdx.x));
  using block = gather_block<warp, Values, Group, Task, decltype(row)>;
  const gather_stretch stretch =
      stretch_of(row.tokens.count(), layout::tile, static_cast<index_t>(blockIdx.y), static_cast<index_t>(gridDim.y));
  if (row.heads == 0 || static_cast<index_t>(blockIdx.y) >= stretch.splits) return;
  static_assert(fits_a_block<typename block::memory>, "gather_attend: a tile of such keys and values is too large");
  __shared__ typename block::memory shared;
  block{task, row, shared, stretch, static_cast<index_t>(blockIdx.z)}.run();
}

/// What launches of such a kernel know of it.
template <class T, index_t HeadDim, index_t Group, class Task, class Values>
early_kernel& early_gather() {
  static early_kernel kernel;
  return kernel;
}
/// Loads it.
/// @tparam Task  as of gather_attend
template <class T, index_t HeadDim, index_t Group, class Task, class Values>
void load_gather() {
  load_kernel(gather_attend_kernel<T, HeadDim, Group, Task, Values>, &early_gather<T, HeadDim, Group, Task, Values>());
}

/// Attends: for each row the heads of one KV head over the row's tokens. Of a row whose tokens are `query_tile`, the
/// heads of several query tokens, each over those under its bit.
///
/// With queries of 16 bits, a Group of 2 or more, and keys and values of the same type or of 8 bits, tensor cores
/// multiply. Weights are then rounded before they meet values, to float16 where these have 8 bits, else to the type of
/// queries, which moves `out` by up to 2^-8 (bfloat16) or 2^-11 (float16) of the largest |value|; `lse` stays as exact
/// as it is. Of queries in bfloat16, with keys of 8 bits, what is smaller than 2^-31 of a head's largest number may be
/// lost. A value that is infinite or NaN reaches all query tokens of its row.
///
/// @tparam HeadDim  64, 96, 128, 192, 256 or 576, as a rule: a key is a multiple of 16 bytes
/// @tparam Group    query heads of a row, at most; where query tokens share it, of all of them
/// @tparam Values   how values are stored: apart, where they may be narrower than keys, or in keys. `task.layer` has
///                  the same distances for both
/// @param splits    blocks that may share a row; with more than one, `task.partial` and `task.arrived` are used
/// @param early     the launch may begin while the one in front of it ends, and waits for it
/// @pre    what `task` points to is on the device, keys and values aligned to 16 bytes; `arrived` is zero, as it is
///         again afterwards; no other launch in progress has the same `partial` and `arrived`
/// @throws precondition_error for splits that are not allowed, or have no memory; error(device) if the kernel cannot
///         be started
/// @cost   the key and the value of each token of a row read once for each head block; one launch
template <class T, index_t HeadDim, index_t Group, class Values = values_apart<HeadDim>, class Number, class Rows,
          class Logits, class Layer>
void gather_attend(const gather_task<T, Number, Rows, Logits, Layer>& task, index_t splits, stream_ref stream,
                   bool early = false) {
  using layout = typename warp_that_gathers<T, Number, HeadDim, Group, Values>::layout;
  using block_task = gather_task<T, Number, Rows, Logits, Layer>;
  static_assert(layout::head_blocks <= gather_layout<T, HeadDim, Group, Values>::head_blocks,
                "the workspace is for these");
  ZOOMR_EXPECTS(splits >= 1 && splits < 65536, "gather_attend: splits must lie in 1 ... 65535");
  ZOOMR_EXPECTS(splits == 1 || (task.partial != nullptr && task.arrived != nullptr),
                "gather_attend: several splits need `partial` and `arrived`");
  if (task.rows.count == 0) return;
  const dim3 grid(static_cast<unsigned>(task.rows.count), static_cast<unsigned>(splits), layout::head_blocks);
  launch({grid, dim3(layout::threads), early ? &early_gather<T, HeadDim, Group, block_task, Values>() : nullptr},
         stream, gather_attend_kernel<T, HeadDim, Group, block_task, Values>, task);
}

/// Bytes of `partial` and `arrived` together, for so many rows: with one split there are no partial states. Enough for
/// either kind of warp, since tensor cores never take more head blocks.
template <class T, index_t HeadDim, index_t Group, class Values = values_apart<HeadDim>>
constexpr byte_count gather_workspace_bytes(index_t rows, index_t splits) {
  const byte_count states = splits > 1 ? byte_count{rows} * splits * Group * state_numbers(Values::width) : 0;
  return states * 4 + byte_count{rows} * gather_layout<T, HeadDim, Group, Values>::head_blocks * 4;
}

}  // namespace zoomr::inline v0

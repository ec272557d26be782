// SPDX-License-Identifier: Apache-2.0
// L4. One warp's part of gather.cuh: how work is shared out, and the states that live in registers.
//
// For all types and groups for which tensor cores do not pay. A token's dimensions are shared by `token_threads`
// threads in pieces of 16 bytes, so that adjacent ones read adjacent memory; a warp reads 32 / token_threads tokens at
// once. Products are float.
#pragma once

#include <zoomr/core/device/device.cuh>
#include <zoomr/core/device/vectors.cuh>
#include <zoomr/core/shape.hpp>
#include <zoomr/math/functions.hpp>

namespace zoomr::inline v0 {

/// How a block shares out its work; everything follows from the types. A warp holds the states of up to
/// `most_heads` heads; larger groups are split over the block's warps, then over blocks, and warps with the same heads
/// share tokens. For the usual sizes keys and values of a tile are at most 16 KiB; two tiles are in shared memory.
template <class T, index_t HeadDim, index_t Group, class Values = values_apart<HeadDim>>
struct gather_layout {
  static constexpr index_t per_piece = per_vector<T>;     // numbers in 16 bytes
  static constexpr index_t pieces = HeadDim / per_piece;  // of a key
  static constexpr index_t value_pieces = Values::width / per_piece;
  static constexpr index_t value_row = Values::in_keys ? pieces : value_pieces;  // from a value to the next one
  static constexpr index_t most_threads(index_t n) {
    return n < warp_lanes && pieces % (2 * n) == 0 && value_pieces % (2 * n) == 0 ? most_threads(2 * n) : n;
  }
  static constexpr index_t token_threads = most_threads(1);  // of a token
  static constexpr index_t dims = HeadDim / token_threads;   // of a key, in each thread
  static constexpr index_t value_dims = Values::width / token_threads;
  static constexpr index_t tokens_at_once = warp_lanes / token_threads;

  static constexpr index_t token_bytes = (HeadDim + Values::stored) * static_cast<index_t>(sizeof(T));
  // of which each has tokens of its own where heads are few: two tiles must fit a block
  static constexpr index_t most_warps(index_t n) {
    return n > 1 && 2 * n * tokens_at_once * token_bytes > 40960 ? most_warps(n / 2) : n;
  }
  static constexpr index_t warps = most_warps(4);
  static constexpr index_t threads = warps * warp_lanes;
  static constexpr index_t most_heads = dims <= 16 ? 4 : dims <= 32 ? 2 : 1;  // of a warp: they live in registers
  static constexpr index_t power_above(index_t n) { return n <= 1 ? 1 : 2 * power_above((n + 1) / 2); }
  static constexpr index_t heads = power_above(Group) < most_heads ? power_above(Group) : most_heads;
  static constexpr index_t wanted_parts = power_above((Group + heads - 1) / heads);
  static constexpr index_t head_parts = wanted_parts < warps ? wanted_parts : warps;  // warps that share tokens
  static constexpr index_t token_parts = warps / head_parts;
  static constexpr index_t block_heads = heads * head_parts;
  static constexpr index_t head_blocks = (Group + block_heads - 1) / block_heads;

  static constexpr index_t step = token_parts * tokens_at_once;  // tokens that all warps take at once
  static constexpr index_t of_bytes = 16384 / token_bytes;
  static constexpr index_t fits = of_bytes < 256 ? of_bytes : 256;  // of more, places and bits take too much room
  static constexpr index_t tile = fits / step > 0 ? fits / step* step : step;
  static constexpr index_t rounds = tile / step;
  static constexpr index_t at_once = rounds % 4 == 0 ? 4 : rounds % 2 == 0 ? 2 : 1;  // rounds that share one rescaling
  static constexpr index_t stage = tile * pieces;                                    // pieces of a tile's keys
  static constexpr index_t value_stage = Values::in_keys ? 0 : tile * value_pieces;  // and of its values
  static_assert(HeadDim % per_piece == 0 && Values::width % per_piece == 0,
                "a key must be a multiple of 16 bytes, and so must a value");
  static_assert(Values::width <= HeadDim, "values may not be wider than keys");

  static constexpr bool reads_whole_tiles = false;
  static constexpr index_t product_numbers = 1;  // warps exchange none
  /// Where a piece of a token is in a stage whose rows have so many.
  ZOOMR_HD static constexpr index_t place(index_t row, index_t token, index_t piece) { return token * row + piece; }
};

/// Where a row is that of one query token, all its heads attend to all its tokens.
struct attended_by_all {
  __device__ constexpr bool operator()(index_t, unsigned) const { return true; }
};

/// One warp's part of a block: the states of its heads over the tokens that it has seen. `max` is in units of ln 2, the
/// same in all threads of a token; `sum` counts the thread's own tokens, `out` the thread's own dimensions of them.
template <class T, index_t HeadDim, index_t Group, class Values = values_apart<HeadDim>>
struct gather_warp {
  using layout = gather_layout<T, HeadDim, Group, Values>;
  static constexpr index_t heads = layout::heads;
  static constexpr index_t dims = layout::dims;
  static constexpr index_t value_dims = layout::value_dims;

  float query[std::size_t{heads}][std::size_t{dims}];
  float out[std::size_t{heads}][std::size_t{value_dims}] = {};
  float max[std::size_t{heads}];
  float sum[std::size_t{heads}] = {};
  unsigned token_bits[std::size_t{heads}];  // the bits of the heads' query tokens, where several read together

  __device__ static index_t warp() { return static_cast<index_t>(threadIdx.x) / warp_lanes; }
  __device__ static index_t token_thread() { return static_cast<index_t>(threadIdx.x) % layout::token_threads; }
  __device__ static index_t token_slot() {
    return static_cast<index_t>(threadIdx.x) % warp_lanes / layout::token_threads;
  }
  __device__ static index_t head_part() { return warp() % layout::head_parts; }
  __device__ static index_t token_part() { return warp() / layout::head_parts; }
  /// The dimension of this thread's `i`-th number.
  __device__ static index_t dim(index_t i) {
    return (i / layout::per_piece * layout::token_threads + token_thread()) * layout::per_piece + i % layout::per_piece;
  }
  /// The token of the tile that this thread reads in a round.
  __device__ static index_t token(index_t round) {
    return (round * layout::token_parts + token_part()) * layout::tokens_at_once + token_slot();
  }

  /// @param of_head  of_head(h): the query of the h-th head from this warp's first on, [head_dim]
  /// @param present  such heads; a warp's room beyond them is filled with zeros
  /// @param factor   what queries are multiplied by: `of_query` of the logits, and the scale of keys
  template <class Queries>
  __device__ void begin(Queries of_head, index_t present, float factor) {
    for (index_t h = 0; h < heads; ++h) {
      max[h] = -infinity;
      for (index_t i = 0; i < dims; ++i) query[h][i] = h < present ? to_float(of_head(h)[dim(i)]) * factor : 0;
    }
  }
  /// @param first        this warp's first head of the row
  /// @param token_heads  heads of a query token
  __device__ void remember_tokens(index_t first, index_t token_heads) {
#pragma unroll
    for (index_t h = 0; h < heads; ++h) token_bits[h] = 1u << (first + h) / token_heads;
  }

  /// This thread's numbers of a key or a value: the first `Dims`, of a row that begins at `first` of the stages.
  template <index_t Dims, index_t N>
  __device__ static void read(shared_array<uint4, N>& stages, index_t first, float (&numbers)[std::size_t{dims}]) {
#pragma unroll
    for (index_t p = 0; p < Dims / layout::per_piece; ++p) {
      const uint4 piece = stages[first + p * layout::token_threads + token_thread()];
      float part[std::size_t{layout::per_piece}];
      unpack<T>(piece, part);
#pragma unroll
      for (index_t i = 0; i < layout::per_piece; ++i) numbers[p * layout::per_piece + i] = part[i];
    }
  }

  /// q . key for each head, summed over the threads of the token, for each of them. All threads of the warp call it.
  __device__ void multiply(const float (&key)[std::size_t{dims}], float (&logit)[std::size_t{heads}]) const {
#pragma unroll
    for (index_t h = 0; h < heads; ++h) {
      float part = 0.0f;
#pragma unroll
      for (index_t i = 0; i < dims; ++i) part = fused(query[h][i], key[i], part);
#pragma unroll
      for (index_t flipped = layout::token_threads / 2; flipped > 0; flipped /= 2) {
        part += __shfl_xor_sync(all_lanes, part, flipped);
      }
      logit[h] = part;
    }
  }

  /// Raises the maximum to that of some logits, scales what is there, and makes the logits weights 2^(logit - max). A
  /// logit of -inf is a token that is not attended: it weighs 0, also where nothing has been attended yet.
  __device__ void weigh(float (&logit)[std::size_t{layout::at_once}][std::size_t{heads}]) {
#pragma unroll
    for (index_t h = 0; h < heads; ++h) {
      float highest = max[h];
#pragma unroll
      for (index_t r = 0; r < layout::at_once; ++r) highest = quick_max(highest, logit[r][h]);
      const float base = highest == -infinity ? 0.0f : highest;
      const float scale = quick_exp2(max[h] - base);
      max[h] = highest;
      sum[h] *= scale;
#pragma unroll
      for (index_t i = 0; i < value_dims; ++i) out[h][i] *= scale;
#pragma unroll
      for (index_t r = 0; r < layout::at_once; ++r) {
        logit[r][h] = quick_exp2(logit[r][h] - base);
        sum[h] += logit[r][h];
      }
    }
  }

  /// Adds `tokens` tokens of a tile, whose keys begin at `keys` and values at `values` of the stages.
  /// @param logits    logits(product, token of the tile, logits.head(head of the block)): from q . k as `begin` has
  ///                  scaled it to a logit in units of ln 2
  /// @param attended  attended(token of the tile, bit of a query token)
  /// @pre  all threads' copies have come; the warp calls it as a whole
  template <class Logits, class Attended, index_t N, index_t M>
  __device__ void add_tile(shared_array<uint4, N>& stages, shared_array<float, M>&, index_t keys, index_t values,
                           index_t tokens, Logits logits, Attended attended) {
    for (index_t first = 0; first < layout::rounds; first += layout::at_once) {
      if (token_part() * layout::tokens_at_once + first * layout::step >= tokens) break;  // the same for the warp
      float weight[std::size_t{layout::at_once}][std::size_t{heads}];
      float numbers[std::size_t{dims}];
#pragma unroll
      for (index_t r = 0; r < layout::at_once; ++r) {
        const bool present = token(first + r) < tokens;
        for (index_t i = 0; i < dims; ++i) numbers[i] = 0.0f;
        if (present) read<dims>(stages, keys + token(first + r) * layout::pieces, numbers);
        multiply(numbers, weight[r]);
        for (index_t h = 0; h < heads; ++h) {
          const bool counts = present && attended(token(first + r), token_bits[h]);
          const auto head = logits.head(head_part() * heads + h);
          weight[r][h] = counts ? logits(weight[r][h], token(first + r), head) : -infinity;
        }
      }
      weigh(weight);
#pragma unroll
      for (index_t r = 0; r < layout::at_once; ++r) {
        if (token(first + r) >= tokens) continue;
        read<value_dims>(stages, values + token(first + r) * layout::value_row, numbers);
#pragma unroll
        for (index_t h = 0; h < heads; ++h) {
          if (!attended(token(first + r), token_bits[h])) continue;  // not even if it is infinite
#pragma unroll
          for (index_t i = 0; i < value_dims; ++i) out[h][i] = fused(weight[r][h], numbers[i], out[h][i]);
        }
      }
    }
  }

  /// Merges the states of the threads that have read different tokens: all of them hold the whole warp's afterwards.
  /// Two threads whose numbers differ in `lane_bit` exchange theirs. Both add the same two numbers, so that both get
  /// the same bits. Bits below `token_threads` tell threads of one token from each other: their states have other
  /// dimensions.
  __device__ void merge_lanes() {
#pragma unroll
    for (index_t lane_bit = layout::token_threads; lane_bit < warp_lanes; lane_bit *= 2) {
#pragma unroll
      for (index_t h = 0; h < heads; ++h) {
        const float partner_max = __shfl_xor_sync(all_lanes, max[h], lane_bit);
        const float highest = quick_max(max[h], partner_max);
        // Where neither has read a token the difference would be NaN.
        const float scale = highest == -infinity ? 0.0f : quick_exp2(max[h] - highest);
        max[h] = highest;
        sum[h] *= scale;  // before the exchange: a thread scales its own state alone
        sum[h] += __shfl_xor_sync(all_lanes, sum[h], lane_bit);
#pragma unroll
        for (index_t i = 0; i < value_dims; ++i) {
          out[h][i] *= scale;
          out[h][i] += __shfl_xor_sync(all_lanes, out[h][i], lane_bit);
        }
      }
    }
  }

  /// Leaves the states in shared memory: numbers as [warps, heads, value width], ends as [warps, heads][max | sum].
  /// @pre  merge_lanes; no warp of the block reads the stages any more. A barrier must follow.
  template <index_t N, index_t M>
  __device__ void leave(shared_array<uint4, N>& numbers, shared_array<float, M>& ends) const {
    if (token_slot() != 0) return;
    for (index_t h = 0; h < heads; ++h) {
      const index_t at = warp() * heads + h;
      if (token_thread() == 0) {
        ends[2 * at] = max[h];
        ends[2 * at + 1] = sum[h];
      }
      for (index_t i = 0; i < value_dims; i += 4) {
        const uint4 four = {bits_as<unsigned>(out[h][i]), bits_as<unsigned>(out[h][i + 1]),
                            bits_as<unsigned>(out[h][i + 2]), bits_as<unsigned>(out[h][i + 3])};
        numbers[(at * Values::width + dim(i)) / 4] = four;
      }
    }
  }
};

}  // namespace zoomr::inline v0

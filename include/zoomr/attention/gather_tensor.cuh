// SPDX-License-Identifier: Apache-2.0
// L4. One warp's part of gather.cuh on tensor cores, where several heads share a key, so that multiplying would take
// longer than reading: S = Q K^T and O += P V in tiles whose rows are 16 heads, of few heads mostly zeros.
//
// Which dimension is which number of a tile is free as long as queries and keys agree, and so is which token is which
// column of S as long as values agree: both are chosen such that a thread reads whole pieces of 16 bytes, and that the
// eight threads that read at once never use the same bank. The sums of S are the operands of P V as they are.
// The scale of logits is applied to S, in float. Weights are rounded to the type that is multiplied before they meet
// values, but added up as they are, so that lse is as exact as without tensor cores.
#pragma once

#include <zoomr/attention/tensor_query.cuh>
#include <zoomr/math/functions.hpp>

#include <type_traits>  // std::is_same_v

namespace zoomr::inline v0 {

/// One warp's part of a block: the states of 16 heads over the tokens that it has seen.
template <class T, class Number, index_t HeadDim, index_t Group, class Values = values_apart<HeadDim>>
struct tensor_warp : tensor_query<T, Number, HeadDim, tensor_layout<T, HeadDim, Group, Values>> {
  using query_type = tensor_query<T, Number, HeadDim, tensor_layout<T, HeadDim, Group, Values>>;
  using layout = tensor_layout<T, HeadDim, Group, Values>;
  using query_type::dim_part, query_type::factor, query_type::has, query_type::quarter, query_type::query,
      query_type::row, query_type::stretch, query_type::warp;
  using query_type::dim_parts, query_type::key_numbers, query_type::own_stretches, query_type::per_piece,
      query_type::steps;
  using typename query_type::multiplied;
  static constexpr index_t tokens_at_once = layout::tokens_at_once;
  static constexpr index_t own_dims = Values::width / dim_parts;         // of a value
  static constexpr index_t pairs = 2 / static_cast<index_t>(sizeof(T));  // of numbers in a word
  // adjacent numbers of a value that a thread reads at once
  static constexpr index_t halved(index_t n) { return own_dims % (8 * n) == 0 ? n : halved(n / 2); }
  static constexpr index_t value_numbers = halved(per_piece);

  float out[std::size_t{own_dims / 8}][4] = {};  // [tile][rows r, r + 8][columns 2c, 2c + 1], as in `mma_16x8x16`
  float max[2] = {-infinity, -infinity};         // of rows r and r + 8
  float sum[2] = {};                             // of this thread's tokens
  unsigned token_bits[2];  // the bits of rows r and r + 8, where several query tokens read together

  __device__ static index_t head_part() { return 0; }
  __device__ static index_t token_part() { return warp() / layout::dim_parts; }
  __device__ static index_t first_dim() { return dim_part() * own_dims; }
  /// Which of eight tokens column `column` of a tile stands for.
  ZOOMR_HD static constexpr index_t of_eight(index_t column) {
    return column % 2 == 0 ? column / 2 : 4 + (column / 2 ^ 1);
  }
  /// The token of the block's tile that column `column` of the warp's first or second eight stands for.
  __device__ static index_t token(index_t half, index_t column) {
    return token_part() * tokens_at_once + half * 8 + of_eight(column);
  }
  /// The first of the dimensions in column `column` of `value_numbers` tiles from `tile` on, one in each.
  __device__ static index_t dim(index_t tile, index_t column) {
    return first_dim() + tile * 8 + column * value_numbers;
  }

  /// @param first        this warp's first head of the row
  /// @param token_heads  heads of a query token
  __device__ void remember_tokens(index_t first, index_t token_heads) {
    for (index_t r = 0; r < 2; ++r) token_bits[r] = 1u << (first + row() + 8 * r) / token_heads;
  }

  /// Word `i` of a piece as operands, two numbers in each.
  __device__ static void operands(const uint4& piece, index_t i, unsigned (&to)[std::size_t{pairs}]) {
    const unsigned word = i == 0 ? piece.x : i == 1 ? piece.y : i == 2 ? piece.z : piece.w;
    if constexpr (std::is_same_v<T, Number>) {
      to[0] = word;
    } else {
      stored_word<T>::halves(word, to);
    }
  }

  /// Adds q . k for 16 heads and 16 tokens, over the warp's stretches.
  /// @param logit  [half of the tokens][rows r, r + 8][columns 2c, 2c + 1]
  template <index_t N>
  __device__ void multiply(shared_array<uint4, N>& stages, index_t keys, float (&logit)[2][4]) const {
    constexpr index_t row_pieces = 4 * key_numbers / per_piece;  // that four threads read at once
    constexpr index_t words = key_numbers / (2 * pairs);
    const index_t piece = quarter() * key_numbers / per_piece;
    const index_t first_word = key_numbers == per_piece ? 0 : quarter() * words % 4;
#pragma unroll
    for (index_t i = 0; i < own_stretches; ++i) {
      if (!has(i)) break;  // the same for the warp
#pragma unroll
      for (index_t half = 0; half < 2; ++half) {
        const index_t own = token(half, row());
        // place(own, stretch(i) * row_pieces + piece), such that only the last term depends on i
        const index_t flipped = layout::flipped(layout::pieces, own), swapped = flipped & 4;
        const index_t first = keys + own * layout::pieces + (piece ^ (flipped & 3));
        const bool even = (dim_parts == 1 ? i : dim_part()) % 2 == 0;
        const uint4 key = stages[(even ? first + swapped : first - swapped) + stretch(i) * row_pieces];
#pragma unroll
        for (index_t step = 0; step < steps; ++step) {
          unsigned both[2];
          if constexpr (pairs == 2) {
            operands(key, first_word + step, both);
          } else {
            unsigned word[1];
            operands(key, first_word + 2 * step, word);
            both[0] = word[0];
            operands(key, first_word + 2 * step + 1, word);
            both[1] = word[0];
          }
          mma_16x8x16<multiplied>(logit[half], query[i * steps + step], both);
        }
      }
    }
  }

  /// Makes logits of the warp's products. Warps that share tokens have multiplied different dimensions: each of them
  /// adds up the products of all, in the order of the warps, so that they get the same bits.
  /// @param products  [warps][8][lanes], where warps share tokens: adjacent lanes use adjacent banks
  /// @cost  one barrier of the block where they do; another one must come before the next call
  template <index_t N>
  __device__ void add_up(shared_array<float, N>& products, float (&logit)[2][4]) const {
#pragma unroll
    for (index_t i = 0; i < 8; ++i) logit[i / 4][i % 4] *= factor[i % 4 / 2];  // two columns of each row
    if constexpr (dim_parts > 1) {
      const index_t warp_lane = static_cast<index_t>(threadIdx.x) % warp_lanes;
#pragma unroll
      for (index_t i = 0; i < 8; ++i) products[(warp() * 8 + i) * warp_lanes + warp_lane] = logit[i / 4][i % 4];
      __syncthreads();
#pragma unroll
      for (index_t i = 0; i < 8; ++i) {
        float logit_sum = 0.0f;
#pragma unroll
        for (index_t part = 0; part < dim_parts; ++part) {
          logit_sum += products[((token_part() * dim_parts + part) * 8 + i) * warp_lanes + warp_lane];
        }
        logit[i / 4][i % 4] = logit_sum;
      }
    }
  }

  /// Raises the maxima to those of some logits, in units of ln 2, scales what is there, and makes the logits weights.
  template <class Logits, class Attended>
  __device__ void weigh(float (&logit)[2][4], index_t tokens, Logits logits, Attended attended) {
#pragma unroll
    for (index_t r = 0; r < 2; ++r) {
      const auto head = logits.head(row() + 8 * r);
      float highest = max[r];
#pragma unroll
      for (index_t i = 0; i < 4; ++i) {
        float& own_logit = logit[i / 2][2 * r + i % 2];
        const index_t of_tile = token(i / 2, 2 * quarter() + i % 2);
        own_logit = of_tile < tokens && attended(of_tile, token_bits[r]) ? logits(own_logit, of_tile, head) : -infinity;
        highest = quick_max(highest, own_logit);
      }
      highest = quick_max(highest, __shfl_xor_sync(all_lanes, highest, 1));
      highest = quick_max(highest, __shfl_xor_sync(all_lanes, highest, 2));
      const float base = highest == -infinity ? 0.0f : highest;
      if (highest > max[r]) {  // seldom, after the first few tiles
        const float scale = quick_exp2(max[r] - base);
        max[r] = highest;
        sum[r] *= scale;
#pragma unroll
        for (index_t tile = 0; tile < own_dims / 8; ++tile) {
          out[tile][2 * r] *= scale;
          out[tile][2 * r + 1] *= scale;
        }
      }
#pragma unroll
      for (index_t i = 0; i < 4; ++i) {
        float& own_logit = logit[i / 2][2 * r + i % 2];
        own_logit = quick_exp2(own_logit - base);
        sum[r] += own_logit;
      }
    }
  }

  /// Adds the values of 16 tokens under their weights.
  template <index_t N>
  __device__ void add_values(shared_array<uint4, N>& stages, index_t values, const float (&weight)[2][4]) {
    // rows r and r + 8 of eight tokens, then of the others
    using word = stored_word<multiplied>;
    const unsigned weights[4] = {word::pack(weight[0]), word::pack(weight[0] + 2), word::pack(weight[1]),
                                 word::pack(weight[1] + 2)};
    constexpr index_t words = value_numbers / (2 * pairs);
    const index_t piece = row() * value_numbers / per_piece;
    const index_t first_word = value_numbers == per_piece ? 0 : row() * words % 4;
#pragma unroll
    for (index_t tile = 0; tile < own_dims / 8; tile += value_numbers) {
      uint4 value[4];
#pragma unroll
      for (index_t t = 0; t < 4; ++t) {
        const index_t own = token(t / 2, 2 * quarter() + t % 2);
        // place(own, (first_dim() + tile * 8) / per_piece + piece): what is flipped is below what eight threads read
        constexpr index_t of_row = layout::value_row;
        const index_t first = values + own * of_row + first_dim() / per_piece + (piece ^ layout::flipped(of_row, own));
        value[t] = stages[first + tile * 8 / per_piece];
      }
#pragma unroll
      for (index_t at = 0; at < words; ++at) {
        unsigned token_words[4][std::size_t{pairs}];
#pragma unroll
        for (index_t t = 0; t < 4; ++t) operands(value[t], first_word + at, token_words[t]);
#pragma unroll
        for (index_t i = 0; i < pairs; ++i) {  // two dimensions of four tokens: of a pair, the tokens must be adjacent
          const unsigned even[2] = {lower_halves(token_words[0][i], token_words[1][i]),
                                    lower_halves(token_words[2][i], token_words[3][i])};
          const unsigned odd[2] = {upper_halves(token_words[0][i], token_words[1][i]),
                                   upper_halves(token_words[2][i], token_words[3][i])};
          mma_16x8x16<multiplied>(out[tile + 2 * (at * pairs + i)], weights, even);
          mma_16x8x16<multiplied>(out[tile + 2 * (at * pairs + i) + 1], weights, odd);
        }
      }
    }
  }

  /// Adds `tokens` tokens of a tile, whose keys begin at `keys` and values at `values` of the stages; what comes after
  /// them is zeros.
  /// @param products  of `product_numbers`, where warps share tokens: then all threads of the block call it
  /// @param logits    as of gather_warp
  /// @param attended  attended(token of the tile, bit of a query token); a value that is infinite or NaN reaches those
  ///                  rows too that do not attend to it
  template <class Logits, class Attended, index_t N, index_t M>
  __device__ void add_tile(shared_array<uint4, N>& stages, shared_array<float, M>& products, index_t keys,
                           index_t values, index_t tokens, Logits logits, Attended attended) {
    float weight[2][4] = {};
    multiply(stages, keys, weight);
    add_up(products, weight);
    weigh(weight, tokens, logits, attended);
    add_values(stages, values, weight);
  }

  /// Adds up what the four threads of a row have seen: each has weighed other tokens. Maxima are the same in all of
  /// them since `weigh`, and `out` is already that of all tokens.
  __device__ void merge_lanes() {
#pragma unroll
    for (index_t r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(all_lanes, sum[r], 1);
      sum[r] += __shfl_xor_sync(all_lanes, sum[r], 2);
    }
  }

  /// Leaves the states in shared memory: numbers as [warps, heads, value width], ends as [warps, heads][max | sum].
  /// A barrier must follow.
  template <index_t N, index_t M>
  __device__ void leave(shared_array<uint4, N>& numbers, shared_array<float, M>& ends) const {
#pragma unroll
    for (index_t r = 0; r < 2; ++r) {
      const index_t at = token_part() * layout::heads + row() + 8 * r;
      if (quarter() == 0 && first_dim() == 0) {
        ends[2 * at] = max[r];
        ends[2 * at + 1] = sum[r];
      }
#pragma unroll
      for (index_t tile = 0; tile < own_dims / 8; tile += 4) {
#pragma unroll
        for (index_t i = 0; i < 2; ++i) {
          const index_t first = tile / value_numbers * value_numbers;
          const index_t d = dim(first, 2 * quarter() + i) + tile - first;
          const index_t n = 2 * r + i;
          const uint4 four = {bits_as<unsigned>(out[tile][n]), bits_as<unsigned>(out[tile + 1][n]),
                              bits_as<unsigned>(out[tile + 2][n]), bits_as<unsigned>(out[tile + 3][n])};
          numbers[(at * Values::width + d) / 4] = four;
        }
      }
    }
  }
};

}  // namespace zoomr::inline v0

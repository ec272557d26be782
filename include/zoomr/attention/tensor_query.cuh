// SPDX-License-Identifier: Apache-2.0
// L4. The queries of one warp of gather_tensor.cuh, in its registers as operands of tensor cores: as they were given,
// or where keys have 8 bits as float16.
#pragma once

#include <zoomr/attention/tensor_layout.cuh>

#include <type_traits>  // std::conditional_t, std::is_same_v

namespace zoomr::inline v0 {

/// 16 queries, over the dimensions of keys that this warp multiplies.
/// @tparam Layout  tensor_layout: `dim_parts` warps share a key, and take its stretches in turn
template <class T, class Number, index_t HeadDim, class Layout>
struct tensor_query {
  /// What is multiplied: keys and values of 8 bits as float16, which takes one instruction for two of them.
  using multiplied = std::conditional_t<sizeof(T) == 1, float16, Number>;
  static constexpr index_t dim_parts = Layout::dim_parts;
  static constexpr index_t per_piece = Layout::per_piece;
  // adjacent numbers of a key that a thread reads at once; a stretch of the key is what four threads read
  static constexpr index_t key_numbers = HeadDim % (4 * per_piece) == 0 ? per_piece : 8;
  static constexpr index_t stretches = HeadDim / (4 * key_numbers);
  static constexpr index_t own_stretches = (stretches + dim_parts - 1) / dim_parts;
  static constexpr index_t steps = key_numbers / 4;  // of a stretch: two pairs of numbers each

  unsigned query[std::size_t{own_stretches * steps}][4];
  float factor[2];  // what q . k of rows r and r + 8 is multiplied by

  __device__ static index_t warp() { return static_cast<index_t>(threadIdx.x) / warp_lanes; }
  __device__ static index_t row() { return static_cast<index_t>(threadIdx.x) % warp_lanes / 4; }
  __device__ static index_t quarter() { return static_cast<index_t>(threadIdx.x) % 4; }
  __device__ static index_t dim_part() { return warp() % dim_parts; }
  /// The number in the key of this warp's `i`-th stretch, and whether there is one.
  __device__ static index_t stretch(index_t i) { return dim_parts == 1 ? i : i * dim_parts + dim_part(); }
  __device__ static bool has(index_t i) { return stretches % dim_parts == 0 || stretch(i) < stretches; }

  /// @param of_head  of_head(h): the query of the h-th head from this warp's first on, [head_dim]
  /// @param present  such heads
  /// @param scale    what q . k is multiplied by
  template <class Queries>
  __device__ void begin(Queries of_head, index_t present, float scale) {
    factor[0] = factor[1] = scale;
#pragma unroll
    for (index_t step = 0; step < own_stretches * steps; ++step) {
      const index_t d = (stretch(step / steps) * 4 + quarter()) * key_numbers + step % steps * 4;
#pragma unroll
      for (index_t i = 0; i < 4; ++i) {
        const index_t head = row() + i % 2 * 8;
        query[step][i] = 0;
        if (head >= present || !has(step / steps)) continue;
        const Number* pair = of_head(head) + d + i / 2 * 2;
        query[step][i] = pair[0].bits | static_cast<unsigned>(pair[1].bits) << 16;
      }
    }
    if constexpr (!std::is_same_v<multiplied, Number>) {
      for (index_t r = 0; r < 2; ++r) query_to_float16(r);
    }
  }

  /// Makes a row's query from bfloat16 float16, times the power of two that takes the largest of the warp's numbers to
  /// 2^14 ... 2^15, and has `factor` undo it. What is 2^-31 of the largest number or more is exact.
  __device__ void query_to_float16(index_t r) {
    unsigned largest = 0;  // magnitude, as bits
#pragma unroll
    for (index_t step = 0; step < own_stretches * steps; ++step) {
      for (const unsigned word : {query[step][r], query[step][r + 2]}) {
        for (const unsigned magnitude : {word & 0x7fffu, word >> 16 & 0x7fffu})
          largest = magnitude > largest ? magnitude : largest;
      }
    }
    for (unsigned distance = 1; distance <= 2; ++distance) {
      const unsigned other = __shfl_xor_sync(all_lanes, largest, distance);
      largest = other > largest ? other : largest;
    }
    const unsigned exponent = largest >> 7 > 15 ? largest >> 7 : 15;  // below, the power has none of its own
    const float power = bits_as<float>((268 - exponent) << 23);
    factor[r] *= bits_as<float>((exponent - 14) << 23);
#pragma unroll
    for (index_t step = 0; step < own_stretches * steps; ++step) {
      for (const index_t i : {r, r + 2}) {
        float numbers[2];
        stored_word<Number>::unpack(query[step][i], numbers);
        for (float& number : numbers) number *= power;
        query[step][i] = stored_word<float16>::pack(numbers);
      }
    }
  }
};

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// What stands between the matrix products of a pass: each kernel is a loop or two of the host's model.hpp. None of them
// is worth more than being read: a pass is bound by reading its weights.
//
// T = tokens of this pass, H = hidden, D = head_dim; Number is float (a kernel in a header must be a template)
#pragma once

#include <zoomr/core/device/device.cuh>
#include <zoomr/math/functions.hpp>

#include <cmath>  // expf, sqrt, tanhf

namespace decode::device {

using zoomr::index_t;
using zoomr::token_id;

inline constexpr index_t block_size = 128;  // threads
inline constexpr index_t block_warps = block_size / zoomr::warp_lanes;

__device__ inline index_t of_block() { return static_cast<index_t>(blockIdx.x); }
__device__ inline index_t of_thread() { return static_cast<index_t>(threadIdx.x); }
__device__ inline std::int64_t of_grid() { return std::int64_t{of_block()} * block_size + of_thread(); }

/// x [T, H]: the rows of the embedding [V, H] that the tokens name, times `scale`. A block for each token.
template <class Number>
__global__ void look_up_kernel(const Number* embedding, const token_id* tokens, index_t hidden, Number scale,
                               Number* x) {
  const Number* from = embedding + std::int64_t{tokens[of_block()]} * hidden;
  Number* to = x + std::int64_t{of_block()} * hidden;
  for (index_t i = of_thread(); i < hidden; i += block_size) to[i] = from[i] * scale;
}

/// RMSNorm of each row: x / sqrt(mean(x²) + ε) * weight; x, out [rows, width], which may be the same. A block for each
/// row; each thread adds up some of the squares, then each warp, then everybody all.
template <class Number>
__global__ void normalize_kernel(const Number* x, const Number* weight, index_t width, double epsilon, Number* out) {
  __shared__ zoomr::shared_array<double, block_warps> of_warp;
  const std::int64_t row = std::int64_t{of_block()} * width;
  double squares = 0;
  for (index_t i = of_thread(); i < width; i += block_size) squares += double{x[row + i]} * x[row + i];
  for (int apart = zoomr::warp_lanes / 2; apart > 0; apart /= 2)
    squares += __shfl_xor_sync(zoomr::all_lanes, squares, apart);
  if (of_thread() % zoomr::warp_lanes == 0) of_warp[of_thread() / zoomr::warp_lanes] = squares;
  __syncthreads();
  double all = 0;
  for (index_t w = 0; w < block_warps; ++w) all += of_warp[w];
  const double scale = 1.0 / sqrt(all / double(width) + epsilon);
  for (index_t i = of_thread(); i < width; i += block_size)
    out[row + i] = static_cast<float>(x[row + i] * scale) * weight[i];
}

/// Turns dimensions d and d + D/2 of each head by the angle of its token; x [T, heads, D], cos and sin [positions,
/// D/2]. A block for each token.
template <class Number>
__global__ void rotate_kernel(Number* x, index_t heads, index_t half, const index_t* positions, const Number* cosines,
                              const Number* sines) {
  const std::int64_t angles = std::int64_t{positions[of_block()]} * half;
  for (index_t i = of_thread(); i < heads * half; i += block_size) {
    const index_t d = i % half;
    Number* at = x + (std::int64_t{of_block()} * heads + i / half) * 2 * half + d;
    const Number cos = cosines[angles + d], sin = sines[angles + d];
    const Number first = at[0], second = at[half];
    at[0] = first * cos - second * sin;
    at[half] = second * cos + first * sin;
  }
}

/// gate [size] = silu(gate) * up [size], or gelu(gate) * up by its formula with tanh. A thread for each number.
template <class Number>
__global__ void gate_kernel(Number* gate, const Number* up, bool gelu, std::int64_t size) {
  if (const std::int64_t i = of_grid(); i < size) {
    const Number x = gate[i];
    constexpr Number slope = 1.5957691216057308f;  // 2 √(2/π): (1 + tanh(s)) / 2 = 1 / (1 + exp(-2 s))
    gate[i] *= up[i] / (1.0f + expf(gelu ? -slope * x * zoomr::fused(0.044715f, x * x, 1.0f) : -x));
  }
}

/// x [size] = cap * tanh(x / cap). A thread for each number.
template <class Number>
__global__ void cap_kernel(Number cap, std::int64_t size, Number* x) {
  if (const std::int64_t i = of_grid(); i < size) x[i] = cap * tanhf(x[i] / cap);
}

/// sum [size] += x [size]. A thread for each number.
template <class Number>
__global__ void add_kernel(const Number* x, std::int64_t size, Number* sum) {
  if (const std::int64_t i = of_grid(); i < size) sum[i] += x[i];
}

/// y [rows, out]: the bias [out], row by row. A thread for each number.
template <class Number>
__global__ void repeat_kernel(const Number* bias, index_t out, std::int64_t size, Number* y) {
  if (const std::int64_t i = of_grid(); i < size) y[i] = bias[i % out];
}

/// total += tokens that the queries of one layer read, summed over the heads of all tokens after their prompts. One
/// thread: there are few rows.
template <class Arrays>
__global__ void count_kernel(Arrays a, std::int64_t* total) {
  std::int64_t read = 0;
  for (index_t t = 0; t < a.table.counts->tokens; ++t) {
    for (index_t row = 0; row < a.sizes.layer_rows && !a.table.tokens[t].prompt; ++row)
      read += std::int64_t{a.read[a.token_row(t, row)].tokens} * (a.sizes.model.heads / a.sizes.layer_rows);
  }
  *total += read;
}

}  // namespace decode::device

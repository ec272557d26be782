// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of the scoring in cache/chooser.hpp: the heads of one KV head ask all segments at once. A warp takes
// as many segments as give 32 scores; each lane holds one of the 32 partial sums of all of them, and the tree that the
// contract asks for (math/dot.hpp) is walked for all together, every exchange halving what a lane still holds.
#pragma once

#include <zoomr/concepts.hpp>
#include <zoomr/math/dot.cuh>

namespace zoomr {
inline namespace v0 {

/// The heads of one KV head that ask, what they ask, and where the answers go.
/// @tparam Number   of queries
/// @tparam Summary  in which the index is kept
template <class Number, class Summary = float>
struct asking_row {
  view<const Number, 2> queries;       // [heads, head_dim]  of the token
  view<const float, 2> sums;           // [heads, head_dim]  over the open segment; empty: the queries alone
  index count = 1;                     // queries in the sums
  const Summary* summaries = nullptr;  // [segments][head_dim][rows]
  index segments = 0;
  view<float, 2> scores;  // [heads, segments]  out
};

inline constexpr index score_threads = 128;
inline constexpr index score_most_numbers = 4096;  // heads * head_dim of a row

/// Scores of segments [first, first + 32 / Heads) for each of `Heads` heads; lane h * (32 / Heads) + s gets that of
/// head h and segment s.
template <index Heads, class Scorer, class Number, class Summary>
__device__ float score_some(const Scorer& scorer, const asking_row<Number, Summary>& row, index head_dim, index first,
                            shared_array<float, score_most_numbers>& asked) {
  constexpr index together = warp_lanes / Heads;
  constexpr index rows = Scorer::summary::rows;
  const auto lane = static_cast<index>(threadIdx.x) % warp_lanes;
  float partial[std::size_t{partial_sums}] = {};
  for (index d = lane; d < head_dim; d += partial_sums) {
    float query[std::size_t{Heads}];
#pragma unroll
    for (index h = 0; h < Heads; ++h) query[h] = h < row.queries.extent(0) ? asked[h * head_dim + d] : 0.0f;
#pragma unroll
    for (index s = 0; s < together; ++s) {
      const bool present = first + s < row.segments;
      const Summary* summary = row.summaries + (std::int64_t{first + s} * head_dim + d) * rows;
      cells<rows> c;
#pragma unroll
      for (index r = 0; r < rows; ++r) c.row[r] = present ? to_float(summary[r]) : 0.0f;
#pragma unroll
      for (index h = 0; h < Heads; ++h) {
        partial[h * together + s] = scorer.term(partial[h * together + s], query[h], c);
      }
    }
  }
  return warp_sums(partial);
}

template <index Heads, class Asker, class Scorer, class Rows>
__global__ void __launch_bounds__(score_threads) score_kernel(Asker asker, Scorer scorer, index head_dim, Rows rows) {
  constexpr index together = warp_lanes / Heads;
  __shared__ shared_array<float, score_most_numbers> asked;
  const auto row = rows.at(static_cast<index>(blockIdx.y));
  const index heads = row.queries.extent(0);
  for (auto i = static_cast<index>(threadIdx.x); i < heads * head_dim; i += score_threads) {
    const float own = to_float(row.queries(i / head_dim, i % head_dim));
    float sum = 0.0f;
    if constexpr (Asker::sums) sum = row.sums.data() == nullptr ? own : row.sums(i / head_dim, i % head_dim);
    asked[i] = asker.ask(own, sum, row.count);
  }
  __syncthreads();
  const auto thread = static_cast<index>(blockIdx.x * score_threads + threadIdx.x);
  const auto warps = static_cast<index>(gridDim.x) * score_threads / warp_lanes;
  const index lane = thread % warp_lanes;
  for (index first = thread / warp_lanes * together; first < row.segments; first += warps * together) {
    const float score = score_some<Heads>(scorer, row, head_dim, first, asked);
    const index head = lane / together;
    const index segment = first + lane % together;
    if (head < heads && segment < row.segments) row.scores(head, segment) = score;
  }
}

/// Scores all segments of each row: the same bits as the host's.
///
/// @tparam Group   heads of a row, at most 32
/// @param  rows    device functor: `rows.at(i)` is an asking_row, `rows.count` how many there are
/// @param  blocks  that share a row
/// @cost   reads each summary once; a fma for each dimension, row of the summary and head; one launch
template <index Group, class Asker, class Scorer, class Rows>
void score_segments(const Asker& asker, const Scorer& scorer, index head_dim, const Rows& rows, index blocks,
                    stream on) {
  constexpr index heads = Group <= 1 ? 1 : Group <= 2 ? 2 : Group <= 4 ? 4 : Group <= 8 ? 8 : Group <= 16 ? 16 : 32;
  static_assert(Group >= 1 && Group <= 32, "score_segments: a KV head serves at most 32 query heads");
  ZOOMR_EXPECTS(head_dim * Group <= score_most_numbers,
                "score_segments: heads of a row times head_dim are at most 4096");
  ZOOMR_EXPECTS(blocks >= 1, "score_segments: each row needs a block");
  if (rows.count == 0) return;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(rows.count));
  launch({grid, dim3(score_threads)}, on, score_kernel<heads, Asker, Scorer, Rows>, asker, scorer, head_dim, rows);
}

}  // namespace v0
}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of the scoring in cache/host/chooser.hpp: the heads of one KV head ask all segments at once. A warp
// takes as many segments as give 32 scores; each lane holds one of the 32 partial sums of all of them, and the tree
// that the contract asks for (math/dot.hpp) is walked for all together, every exchange halving what a lane still holds.
#pragma once

#include <zoomr/math/dot.cuh>
#include <zoomr/policy/concepts.hpp>

namespace zoomr {
inline namespace v0 {

/// The heads of one KV head that ask, what they ask, and where the answers go. As it is default-constructed, with no
/// segments, there is nothing to score.
/// @tparam Number   of queries
/// @tparam Summary  in which the index is kept
template <class Number, class Summary = float>
struct asking_row {
  view<const Number, 2> queries;       // [heads, head_dim]  of the token
  view<const float, 2> sums;           // [heads, head_dim]  over the open segment; empty: the queries alone
  index_t count = 1;                   // queries in the sums
  const Summary* summaries = nullptr;  // [segments][head_dim][rows]
  index_t segments = 0;
  view<float, 2> scores;  // [heads, segments]  out
};

inline constexpr index_t score_threads = 128;
inline constexpr index_t score_most_numbers = 4096;  // heads * head_dim of a row

/// Scores of segments [first, first + 32 / Heads) for each of `Heads` heads; lane h * (32 / Heads) + s gets that of
/// head h and segment s.
template <index_t Heads, class Scorer, class Number, class Summary>
__device__ float score_some(const Scorer& scorer, const asking_row<Number, Summary>& row, index_t head_dim,
                            index_t first, shared_array<float, score_most_numbers>& asked) {
  constexpr index_t together = warp_lanes / Heads;
  constexpr index_t rows = Scorer::summary::rows;
  constexpr index_t sums = sums_of<Scorer>();
  const auto lane = static_cast<index_t>(threadIdx.x) % warp_lanes;
  float partial[std::size_t{sums}][std::size_t{partial_sums}] = {};
  for (index_t d = lane; d < head_dim; d += partial_sums) {
    float query[std::size_t{Heads}];
#pragma unroll
    for (index_t h = 0; h < Heads; ++h) query[h] = h < row.queries.extent(0) ? asked[h * head_dim + d] : 0.0f;
#pragma unroll
    for (index_t s = 0; s < together; ++s) {
      const bool present = first + s < row.segments;
      const Summary* summary = row.summaries + (std::int64_t{first + s} * head_dim + d) * rows;
      cells<rows> c;
#pragma unroll
      for (index_t r = 0; r < rows; ++r) c.row[r] = present ? to_float(summary[r]) : 0.0f;
#pragma unroll
      for (index_t h = 0; h < Heads; ++h) {
        const index_t at = h * together + s;
        if constexpr (several_sums_scorer<Scorer>) {
          score_sums<sums> acc;
#pragma unroll
          for (index_t i = 0; i < sums; ++i) acc.at[i] = partial[i][at];
          acc = scorer.term(acc, query[h], c);
#pragma unroll
          for (index_t i = 0; i < sums; ++i) partial[i][at] = acc.at[i];
        } else {
          partial[0][at] = scorer.term(partial[0][at], query[h], c);
        }
      }
    }
  }
  if constexpr (several_sums_scorer<Scorer>) {
    score_sums<sums> all;
#pragma unroll
    for (index_t i = 0; i < sums; ++i) all.at[i] = warp_sums(partial[i]);
    return scorer.finish(all);
  } else {
    return warp_sums(partial[0]);
  }
}

/// Grid (blocks that share a row, rows), blocks of score_threads. Each block makes the queries that ask once, in 16 KiB
/// of shared memory; then its warps take the segments in turn. Summaries were written by earlier kernels of the stream.
template <index_t Heads, class QuerySource, class Scorer, class Rows>
__global__ void __launch_bounds__(score_threads)
    score_kernel(QuerySource query_source, Scorer scorer, index_t head_dim, Rows rows) {
  constexpr index_t together = warp_lanes / Heads;
  __shared__ shared_array<float, score_most_numbers> asked;
  const auto row = rows.at(static_cast<index_t>(blockIdx.y));
  const index_t heads = row.queries.extent(0);
  for (auto i = static_cast<index_t>(threadIdx.x); i < heads * head_dim; i += score_threads) {
    const float own = to_float(row.queries(i / head_dim, i % head_dim));
    float sum = 0.0f;
    if constexpr (QuerySource::sums) sum = row.sums.data() == nullptr ? own : row.sums(i / head_dim, i % head_dim);
    asked[i] = query_source.query(own, sum, row.count);
  }
  __syncthreads();
  const auto thread = static_cast<index_t>(blockIdx.x * score_threads + threadIdx.x);
  const auto warps = static_cast<index_t>(gridDim.x) * score_threads / warp_lanes;
  const index_t lane = thread % warp_lanes;
  for (index_t first = thread / warp_lanes * together; first < row.segments; first += warps * together) {
    const float score = score_some<Heads>(scorer, row, head_dim, first, asked);
    const index_t head = lane / together;
    const index_t segment = first + lane % together;
    if (head < heads && segment < row.segments) row.scores(head, segment) = score;
  }
}

/// Scores all segments of each row: the same bits as the host's.
///
/// @tparam Group   heads of a row, at most 32
/// @param  rows    device functor: `rows.at(i)` is an asking_row, `rows.count` how many there are
/// @param  blocks  that share a row
/// @throws precondition_error for rows with too many numbers, or no block; error(device) if the kernel cannot be
///         started
/// @cost   reads each summary once; a fma for each dimension, row of the summary and head; one launch
template <index_t Group, class QuerySource, class Scorer, class Rows>
void score_segments(const QuerySource& query_source, const Scorer& scorer, index_t head_dim, const Rows& rows,
                    index_t blocks, stream on) {
  constexpr index_t heads = Group <= 1 ? 1 : Group <= 2 ? 2 : Group <= 4 ? 4 : Group <= 8 ? 8 : Group <= 16 ? 16 : 32;
  static_assert(Group >= 1 && Group <= 32, "score_segments: a KV head serves at most 32 query heads");
  ZOOMR_EXPECTS(head_dim * Group <= score_most_numbers,
                "score_segments: heads of a row times head_dim are at most 4096");
  ZOOMR_EXPECTS(blocks >= 1, "score_segments: each row needs a block");
  if (rows.count == 0) return;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(rows.count));
  launch({grid, dim3(score_threads)}, on, score_kernel<heads, QuerySource, Scorer, Rows>, query_source, scorer,
         head_dim, rows);
}

}  // namespace v0
}  // namespace zoomr

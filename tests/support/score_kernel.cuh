// SPDX-License-Identifier: Apache-2.0
// Scoring by a kernel of its own. In a step it is a part of layer_kernel; here it is tested, timed and counted alone.
#pragma once

#include <zoomr/policy/score/scores.cuh>

namespace zoomr_test {

using zoomr::index_t;
using zoomr::launch;
using zoomr::shared_array;
using zoomr::stream_ref;
using zoomr::warp_lanes;

inline constexpr index_t score_threads = 128;
inline constexpr index_t score_most_numbers = 4096;  // heads * head_dim of a row

/// Grid (rows, blocks that share a row), blocks of score_threads. Each block makes the queries that ask once, in
/// shared memory; then its warps take the segments in turn. Summaries were written by earlier kernels of the stream.
template <index_t Heads, index_t HeadDim, class QuerySource, class Scorer, class Rows>
__global__ void __launch_bounds__(score_threads) score_kernel(QuerySource query_source, Scorer scorer, Rows rows) {
  __shared__ shared_array<float, Heads * HeadDim> queries;
  const auto row = rows.at(static_cast<index_t>(blockIdx.x));
  if (row.segments == 0) return;
  const index_t heads = row.queries.extent(0);
  for (auto i = static_cast<index_t>(threadIdx.x); i < heads * HeadDim; i += score_threads) {
    const float own = zoomr::to_float(row.queries(i / HeadDim, i % HeadDim));
    float sum = 0.0f;
    if constexpr (QuerySource::sums) sum = row.sums.data() == nullptr ? own : row.sums(i / HeadDim, i % HeadDim);
    queries[i] = query_source.query(own, sum, row.count);
  }
  __syncthreads();
  const zoomr::scoring_warp<Heads, HeadDim, Scorer, typename Rows::number, typename Rows::summary> warp{scorer, row,
                                                                                                        queries};
  warp.score_all(static_cast<index_t>(blockIdx.y * score_threads + threadIdx.x) / warp_lanes,
                 static_cast<index_t>(gridDim.y) * score_threads / warp_lanes);
}

/// Scores all segments of each row: the same bits as the host's.
///
/// @tparam Group    heads of a row, at most 32
/// @tparam HeadDim  of queries and keys
/// @param  rows     device functor: `rows.at(i)` is an row_to_score of `Rows::number` and `Rows::summary`, `rows.count`
///                  how many there are
/// @param  blocks   that share a row, below 65,536
/// @throws precondition_error for rows with too many numbers, or no block; error(device) if the kernel cannot be
///         started
/// @cost   reads each summary once; a fma for each dimension, row of the summary and head; one launch
template <index_t Group, index_t HeadDim, class QuerySource, class Scorer, class Rows>
void score_segments(const QuerySource& query_source, const Scorer& scorer, const Rows& rows, index_t blocks,
                    stream_ref stream) {
  static_assert(Group >= 1 && Group <= 32, "score_segments: a KV head serves at most 32 query heads");
  static_assert(HeadDim * Group <= score_most_numbers, "score_segments: heads of a row times HeadDim are at most 4096");
  ZOOMR_EXPECTS(blocks >= 1 && blocks < 65536, "score_segments: each row needs a block, and has at most 65,535");
  if (rows.count == 0) return;
  const dim3 grid(static_cast<unsigned>(rows.count), static_cast<unsigned>(blocks));
  launch({grid, dim3(score_threads)}, stream,
         score_kernel<zoomr::scored_heads<Group>, HeadDim, QuerySource, Scorer, Rows>, query_source, scorer, rows);
}

}  // namespace zoomr_test

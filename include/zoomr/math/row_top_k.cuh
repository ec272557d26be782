// SPDX-License-Identifier: Apache-2.0
// L2. The best k of each row, for votes and scores. A cache uses `write_best` alone, for the tokens that a KV lane
// keeps (cache/device/eviction/observation.cuh); `launch_top_k` is for engines, and for benchmarks.
#pragma once

#include <zoomr/math/best.cuh>

namespace zoomr {
inline namespace v0 {

inline constexpr index_t top_k_threads = 256;

/// One row of scores as a walk sees it.
struct row_of_votes {
  view<const votes_t> row;
  __device__ index_t size() const { return row.size(); }
  __device__ votes_t key(index_t id) const { return row[id]; }
  __device__ index_t tokens(index_t) const { return 1; }
};
struct row_of_scores {
  view<const float> row;
  __device__ index_t size() const { return row.size(); }
  __device__ votes_t key(index_t id) const { return order_key(row[id]); }
  __device__ index_t tokens(index_t) const { return 1; }
};
__device__ inline row_of_votes walked(view<const votes_t> row) { return {row}; }
__device__ inline row_of_scores walked(view<const float> row) { return {row}; }

/// Writes the taken ids of one walk, ascending. All threads call it; the block sees them after its next barrier.
/// @param ids  [k]  as many as can be taken; padded with -1
/// @return     how many were taken, to all threads
template <index_t Threads, class Items>
__device__ index_t write_best(block_threads& block, best_walk<Threads, Items>& walk, view<index_t> ids) {
  index_t taken = 0;
  walk.each([&](index_t id, index_t part) {
    const scanned<index_t> of_tile = block.sum_before(part > 0 ? 1 : 0);
    if (part > 0) ids[taken + of_tile.before] = id;
    taken += of_tile.all;
  });
  for (index_t i = taken + block.thread(); i < ids.size(); i += Threads) ids[i] = -1;
  return taken;
}

/// A block for each row, which blockIdx.x names. @see launch_top_k
template <class Score>
__global__ void __launch_bounds__(top_k_threads)
    top_k_kernel(view<const Score, 2> scores, view<index_t, 2> ids, view<index_t> counts) {
  __shared__ block_scratch scratch;
  __shared__ best_scratch<top_k_threads> walk_scratch;
  block_threads block(scratch);
  const auto row = static_cast<index_t>(blockIdx.x);
  const auto items = walked(scores[row]);
  const take_limits limits{.segments = ids.extent(1)};
  best_walk<top_k_threads, decltype(items)> walk(block, walk_scratch, items, limits, not_eligible + 1);
  const index_t taken = write_best(block, walk, ids[row]);
  if (block.thread() == 0) counts[row] = taken;
}

/// The best of each row: highest score, ties to the lower id, NaN last.
///
/// @param scores  [rows, n]  votes, of which `not_eligible` is never taken, or floats; n up to 65,536
/// @param ids     [rows, k]  the ids of the best k, ascending, padded with -1
/// @param counts  [rows]     how many were taken
/// @throws error(device) if the kernel cannot be started
/// @cost   one block for each row; reads a row twice, and once more for each 8 bits in which scores differ
template <class Score>
void launch_top_k(view<const Score, 2> scores, view<index_t, 2> ids, view<index_t> counts, stream on) {
  ZOOMR_EXPECTS(ids.extent(0) == scores.extent(0) && counts.size() == scores.extent(0),
                "top_k: ids and counts need a row for each row of scores");
  if (scores.extent(0) == 0) return;
  const launch_shape shape{dim3(static_cast<unsigned>(scores.extent(0))), dim3(top_k_threads)};
  launch(shape, on, &top_k_kernel<Score>, scores, ids, counts);
}

}  // namespace v0
}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// L2. The best k of each row, for votes and scores. A cache uses `write_best` alone, for the tokens that a KV lane
// keeps (cache/device/eviction/observation.cuh); `launch_top_k` is for engines, and for benchmarks.
#pragma once

#include <zoomr/math/best.cuh>
#include <zoomr/math/best_floats.cuh>

namespace zoomr {
inline namespace v0 {

/// Threads of a block. Floats are read in pieces of 16 bytes, and a row of them by more threads at once.
template <class Score>
inline constexpr index_t top_k_threads = std::is_same_v<Score, float> ? 512 : 256;

/// One row of votes as a walk sees it.
struct row_of_votes {
  view<const votes_t> row;
  __device__ index_t size() const { return row.size(); }
  __device__ votes_t key(index_t id) const { return row[id]; }
  __device__ index_t tokens(index_t) const { return 1; }
};

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
__global__ void __launch_bounds__(top_k_threads<Score>)
    top_k_kernel(view<const Score, 2> scores, view<index_t, 2> ids, view<index_t> counts) {
  constexpr index_t threads = top_k_threads<Score>;
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  const auto row = static_cast<index_t>(blockIdx.x);
  index_t taken = 0;
  if constexpr (std::is_same_v<Score, float>) {
    __shared__ best_floats_scratch<threads> own_scratch;
    taken = best_floats<threads>(block, own_scratch, scores[row]).write(ids[row]);
  } else {
    __shared__ best_scratch<threads> walk_scratch;
    const row_of_votes items{scores[row]};
    const take_limits limits{.segments = ids.extent(1)};
    best_walk<threads, row_of_votes> walk(block, walk_scratch, items, limits, not_eligible + 1);
    taken = write_best(block, walk, ids[row]);
  }
  if (block.thread() == 0) counts[row] = taken;
}

/// The best of each row: highest score, ties to the lower id, NaN last.
///
/// @param scores  [rows, n]  votes, of which `not_eligible` is never taken, or floats; n up to 65,536
/// @param ids     [rows, k]  the ids of the best k, ascending, padded with -1
/// @param counts  [rows]     how many were taken
/// @throws error(device) if the kernel cannot be started
/// @cost   one block for each row. Reads a row of floats two to four times (best_floats.cuh), of votes twice, and once
///         more for each 10 bits in which they differ
template <class Score>
void launch_top_k(view<const Score, 2> scores, view<index_t, 2> ids, view<index_t> counts, stream queue) {
  ZOOMR_EXPECTS(ids.extent(0) == scores.extent(0) && counts.size() == scores.extent(0),
                "top_k: ids and counts need a row for each row of scores");
  if (scores.extent(0) == 0) return;
  const launch_shape shape{dim3(static_cast<unsigned>(scores.extent(0))), dim3(top_k_threads<Score>)};
  launch(shape, queue, &top_k_kernel<Score>, scores, ids, counts);
}

}  // namespace v0
}  // namespace zoomr

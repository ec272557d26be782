// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of resolve.hpp: a block turns levels into the same runs. Each thread holds the parts of a few
// segments; the end of what was attended before it says whether they touch, prefix sums say where they go.
#pragma once

#include <zoomr/attend/resolve.hpp>
#include <zoomr/core/block.cuh>

namespace zoomr {
inline namespace v0 {

/// How much a query attends. Both numbers of one addend fit one word, so that a scan adds them together.
struct attended_size {
  static constexpr std::int64_t one_run = std::int64_t{1} << 32;  // runs above, tokens below

  index runs = 0;
  index tokens = 0;

  __device__ attended_size plus(std::int64_t sums) const {
    return {runs + static_cast<index>(sums / one_run), tokens + static_cast<index>(sums % one_run)};
  }
};

/// Twin of `run_list` for a block: ascending runs in global memory; touching ones are joined, empty ones dropped.
class block_run_list {
 public:
  /// @param runs    [most runs]  out
  /// @param before  [most runs]  out: tokens in the runs before
  __device__ block_run_list(block_threads& block, view<run> runs, view<index> before)
      : block_(block), runs_(runs), before_(before) {}

  /// Adds the runs of all threads, those of a lower thread first; they must ascend. All threads call it.
  template <std::size_t Count>
  __device__ void add(const run (&added)[Count]) {
    index end = -1;
    for (const run& r : added) end = r.size() > 0 ? r.last : end;
    const scanned<index> ends = block_.max_before(end);
    const index reached = larger(end_, ends.before);
    const scanned<std::int64_t> sums = block_.sum_before(counted(added, reached));
    write(added, reached, sums.before);
    size_ = size_.plus(sums.all);
    end_ = larger(end_, ends.all);
  }

  /// Ends the last run. All threads call it, and nothing after it.
  __device__ attended_size close() {
    if (block_.thread() == 0 && size_.runs > 0) runs_[size_.runs - 1].last = end_;
    return size_;
  }

 private:
  __device__ static index larger(index a, index b) { return a > b ? a : b; }

  template <std::size_t Count>
  __device__ static std::int64_t counted(const run (&added)[Count], index reached) {
    std::int64_t sums = 0;
    for (const run& r : added) {
      if (r.size() <= 0) continue;
      sums += (r.first != reached ? attended_size::one_run : 0) + r.size();
      reached = r.last;
    }
    return sums;
  }

  // A run ends where the next one begins to be written.
  template <std::size_t Count>
  __device__ void write(const run (&added)[Count], index reached, std::int64_t sums) const {
    attended_size at = size_.plus(sums);
    for (const run& r : added) {
      if (r.size() <= 0) continue;
      if (r.first != reached) {
        runs_[at.runs].first = r.first;
        before_[at.runs] = at.tokens;
        if (at.runs > 0) runs_[at.runs - 1].last = reached;
        ++at.runs;
      }
      at.tokens += r.size();
      reached = r.last;
    }
  }

  block_threads& block_;
  view<run> runs_;
  view<index> before_;
  attended_size size_;
  index end_ = -1;  // of what has been added
};

/// Finds the slots that a query attends under `row`: the runs of the host's `resolve`, in the same order.
///
/// @param segments  [segments]  ascending
/// @param runs      [2 * segments + 2]  out
/// @param before    [2 * segments + 2]  out: tokens in the runs before
/// @return          how many runs and tokens, to all threads
/// @cost  O(segments / threads), or times O(log retained) where a lane has been compacted; 2 barriers for each
///        4 * threads segments
__device__ inline attended_size resolve(block_threads& block, view<const segment> segments, const selection_row& row,
                                        zone_bounds zone, bool own_summary, const slot_map& slots, view<run> runs,
                                        view<index> before) {
  constexpr index for_each_thread = 4;  // segments
  block_run_list list(block, runs, before);
  const index pieces = segments.size() + 2;  // front zone, segments, back zone
  for (index tile = 0; tile < pieces; tile += for_each_thread * block.size()) {
    run added[std::size_t{2 * for_each_thread}];
#pragma unroll
    for (index i = 0; i < for_each_thread; ++i) {
      const index piece = tile + block.thread() * for_each_thread + i;
      const index id = piece - 1;
      attended_parts parts;
      if (piece == 0) parts.details = {0, slots.slot_of(zone.front)};
      if (0 <= id && id < segments.size()) parts = parts_attended(segments[id], id, row, zone, own_summary, slots);
      if (id == segments.size()) parts.details = {slots.slot_of(zone.back), slots.slot_of(zone.end)};
      added[2 * i] = parts.details;
      added[2 * i + 1] = parts.summary;
    }
    list.add(added);
  }
  return list.close();
}

/// A row of a selection as one query reads it, and where its runs go.
struct row_to_resolve {
  bool due = false;              // false: there is nothing to do
  view<const segment> segments;  // [segments]
  selection_row row;
  zone_bounds zone;
  bool own_summary = true;
  slot_map slots;
  view<run> runs;                 // [2 * segments + 2]  out
  view<index> before;             // [2 * segments + 2]  out: tokens in the runs before
  attended_size* size = nullptr;  // out
};

inline constexpr index resolve_threads = 256;

/// @see launch_resolve
template <class Rows>
__global__ void __launch_bounds__(resolve_threads) resolve_kernel(Rows rows) {
  __shared__ block_scratch scratch;
  const row_to_resolve one = rows.at(static_cast<index>(blockIdx.x));
  if (!one.due) return;
  block_threads block(scratch);
  const attended_size size =
      resolve(block, one.segments, one.row, one.zone, one.own_summary, one.slots, one.runs, one.before);
  if (block.thread() == 0) *one.size = size;
}

/// Resolves `count` rows, each in a block of its own.
/// @param rows  a kernel argument; `rows.at(i)` gives, on the device, the i-th `row_to_resolve`
/// @throws error(device) if the kernel cannot be started
template <class Rows>
void launch_resolve(const Rows& rows, index count, stream on) {
  if (count == 0) return;
  launch({dim3(static_cast<unsigned>(count)), dim3(resolve_threads)}, on, &resolve_kernel<Rows>, rows);
}

}  // namespace v0
}  // namespace zoomr

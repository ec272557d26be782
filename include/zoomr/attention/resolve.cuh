// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of resolve.hpp: a block turns levels into the same ranges. Each thread holds the parts of a few
// segments; whether they touch follows from the end of what was attended before, and their places from prefix sums.
//
// layer_kernel (cache/device/launching/layer_kernel.cuh) resolves what it has just chosen in the same block. The ranges
// are read by later kernels of the stream: query_tile_kernel, those that fetch, gather_attend.
#pragma once

#include <zoomr/attention/resolve.hpp>
#include <zoomr/core/device/block.cuh>

namespace zoomr::inline v0 {

/// How much a query attends. Both numbers of one addend fit one word, so that a scan adds them together.
struct attended_size {
  static constexpr std::int64_t one_range = std::int64_t{1} << 32;  // ranges above, tokens below

  index_t ranges = 0;
  index_t tokens = 0;

  /// What there is after `sums`: a sum of `one_range` for each range, and of 1 for each token.
  __device__ attended_size plus(std::int64_t sums) const {
    return {ranges + static_cast<index_t>(sums / one_range), tokens + static_cast<index_t>(sums % one_range)};
  }
};

/// Twin of `range_list` for a block: ascending ranges in global memory; touching ones are joined, empty ones dropped.
/// Its counts are the same in all threads; what it writes is seen by the block after its next barrier.
class block_range_list {
 public:
  /// @param ranges  [most ranges]  out
  /// @param before  [most ranges]  out: tokens in the ranges before
  __device__ block_range_list(block_threads& block, view<token_range> ranges, view<index_t> before)
      : block_(block), ranges_(ranges), before_(before) {}

  /// Adds the ranges of all threads, those of a lower thread first; they must ascend. All threads call it.
  /// @cost  2 barriers
  template <std::size_t Count>
  __device__ void add(const token_range (&added)[Count]) {
    index_t end = -1;
    for (const token_range& r : added) end = r.size() > 0 ? r.last : end;
    const scanned<index_t> ends = block_.max_before(end);
    const index_t reached = larger(end_, ends.before);
    const scanned<std::int64_t> sums = block_.sum_before(counted(added, reached));
    write(added, reached, sums.before);
    size_ = size_.plus(sums.all);
    end_ = larger(end_, ends.all);
  }

  /// Ends the last range. All threads call it, and nothing after it.
  __device__ attended_size close() {
    if (block_.thread() == 0 && size_.ranges > 0) ranges_[size_.ranges - 1].last = end_;
    return size_;
  }

 private:
  __device__ static index_t larger(index_t a, index_t b) { return a > b ? a : b; }

  // What this thread's ranges add to the list, if what comes before them ends at `reached`: one that begins there only
  // lengthens the last range.
  template <std::size_t Count>
  __device__ static std::int64_t counted(const token_range (&added)[Count], index_t reached) {
    std::int64_t sums = 0;
    for (const token_range& r : added) {
      if (r.size() <= 0) continue;
      sums += (r.first != reached ? attended_size::one_range : 0) + r.size();
      reached = r.last;
    }
    return sums;
  }

  // A range is ended by the thread that writes the begin of the next one: `reached` is where the one before has come
  // to. The last range is ended by `close`.
  template <std::size_t Count>
  __device__ void write(const token_range (&added)[Count], index_t reached, std::int64_t sums) const {
    attended_size at = size_.plus(sums);
    for (const token_range& r : added) {
      if (r.size() <= 0) continue;
      if (r.first != reached) {
        ranges_[at.ranges].first = r.first;
        before_[at.ranges] = at.tokens;
        if (at.ranges > 0) ranges_[at.ranges - 1].last = reached;
        ++at.ranges;
      }
      at.tokens += r.size();
      reached = r.last;
    }
  }

  block_threads& block_;
  view<token_range> ranges_;
  view<index_t> before_;
  attended_size size_;
  index_t end_ = -1;  // of what has been added
};

/// Finds the slots that a query attends under `row`: the ranges of the host's `resolve`, in the same order.
///
/// @param block        all its threads call this
/// @param segments     [segments]  ascending
/// @param row          levels, and the cut
/// @param zone         of the query, in positions
/// @param own_summary  whether the summary tokens of a segment at `level::details` are attended too
/// @param slots        of the KV lane: from positions to slots
/// @param ranges       [2 * segments + 2]  out, in slots
/// @param before       [2 * segments + 2]  out: tokens in the ranges before
/// @return          how many ranges and tokens, to all threads
/// @cost  O(segments / threads), or times O(log kept) where a KV lane has been compacted; 2 barriers for each
///        4 * threads segments
__device__ inline attended_size resolve(block_threads& block, view<const segment> segments, const selection_row& row,
                                        zone_bounds zone, bool own_summary, const slot_map& slots,
                                        view<token_range> ranges, view<index_t> before) {
  constexpr index_t for_each_thread = 4;  // segments
  block_range_list list(block, ranges, before);
  const index_t pieces = segments.size() + 2;  // front zone, segments, back zone
  for (index_t tile = 0; tile < pieces; tile += for_each_thread * block.size()) {
    token_range added[std::size_t{2 * for_each_thread}];
#pragma unroll
    for (index_t i = 0; i < for_each_thread; ++i) {
      const index_t piece = tile + block.thread() * for_each_thread + i;
      const index_t id = piece - 1;
      attended_parts parts;
      if (piece == 0) parts.details = {slots.slot_of(zone.begin), slots.slot_of(zone.front)};
      if (0 <= id && id < segments.size()) parts = parts_attended(segments[id], id, row, zone, own_summary, slots);
      if (id == segments.size()) parts.details = {slots.slot_of(zone.back), slots.slot_of(zone.end)};
      added[2 * i] = parts.details;
      added[2 * i + 1] = parts.summary;
    }
    list.add(added);
  }
  return list.close();
}

/// A row of a selection as one query reads it, and where its ranges go.
struct row_to_resolve {
  view<const segment> segments;  // [segments]
  selection_row row;
  zone_bounds zone;
  bool own_summary = true;
  slot_map slots;
  view<token_range> ranges;       // [2 * segments + 2]  out
  view<index_t> before;           // [2 * segments + 2]  out: tokens in the ranges before
  attended_size* size = nullptr;  // out
};

inline constexpr index_t resolve_threads = 256;

}  // namespace zoomr::inline v0

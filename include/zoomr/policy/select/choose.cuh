// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of what the host's chooser does before and after scoring (cache/host/choosing/chooser.hpp): counts
// what can be attended of each segment, then takes the best of them with any selector that is a walk with limits, and
// their neighbours.
//
// layer_kernel and choose_for_all_kernel (cache/device/choosing/choices.cuh) call it. A row's segments are shared out
// once: thread `id % threads` reads and writes all that belongs to segment `id`, from its count to its level.
#pragma once

#include <zoomr/math/best.cuh>
#include <zoomr/policy/slot_map.hpp>
#include <zoomr/policy/take_best.hpp>
#include <zoomr/policy/zones.hpp>

namespace zoomr::inline v0 {

/// One row of a selection that is to be made, of what, and where it goes. All memory is the cache's, on the device; the
/// levels stay where they are written, and `selection` only names them.
struct row_to_choose {
  view<const segment> segments;           // [segments]
  zone_bounds zone;                       // of the token that chooses
  slot_map slots;                         // of the KV lane whose tokens count
  view<const votes_t> votes;              // [segments]
  votes_t least = 0;                      // below it a segment is not taken
  votes_t least_attended = not_eligible;  // below it the summary of an eligible segment is not attended either
  view<index_t> tokens;                   // [segments]  working memory
  view<level> levels;                     // [segments]  out
  selection_row* selection = nullptr;     // out: `levels` and the cut
};

/// The least votes with which the summary of an eligible segment is attended.
template <class Aggregator>
ZOOMR_HD constexpr votes_t least_attended(summaries_attended which) {
  if (which == summaries_attended::all) return not_eligible;
  return Aggregator::counts ? 1 : Aggregator::least;  // some vote, some mass
}

/// Counts what each segment has left between the zones: visit(id, tokens) on one thread for each segment.
///
/// Segment `id` is visited by thread `id % threads`. All threads call it.
/// @return  the tokens attended whatever is chosen, zones and summaries, to all threads
/// @cost    O(segments / threads), or times O(log kept) where a KV lane has been compacted; 1 barrier
template <class Visit>
__device__ index_t count_left(block_threads& block, view<const segment> segments, zone_bounds zone,
                              const slot_map& slots, Visit visit) {
  index_t of_summaries = 0;
  for (index_t id = block.thread(); id < segments.size(); id += block.size()) {
    const segment s = segments[id];
    visit(id, between_zones(s.begin, s.split, zone, slots).size());
    of_summaries += between_zones(s.split, s.end, zone, slots).size();
  }
  return zone.tokens(slots) + block.sum(of_summaries);
}

/// Begins a choice: writes what each segment has left, and the votes that the aggregator adds to.
/// @param tokens  [segments]  out
/// @param votes   [segments]  out: 0, or `not_eligible` where nothing is left
/// @return         as `count_left`
__device__ inline index_t begin_choice(block_threads& block, view<const segment> segments, zone_bounds zone,
                                       const slot_map& slots, view<index_t> tokens, view<votes_t> votes) {
  return count_left(block, segments, zone, slots, [&](index_t id, index_t left) {
    tokens[id] = left;
    votes[id] = left > 0 ? 0 : not_eligible;
  });
}

/// The segments of a row as a walk sees them.
struct segments_to_choose {
  view<const votes_t> votes;
  view<const index_t> left;
  __device__ index_t size() const { return votes.size(); }
  __device__ votes_t key(index_t id) const { return votes[id]; }
  __device__ index_t tokens(index_t id) const { return left[id]; }
};

/// What zones and summaries take of a limit in tokens; of a selector that has none, nothing is counted.
/// @cost  as `count_left`, or none
template <limited_selector Selector>
__device__ index_t attended_anyway(block_threads& block, const Selector& select, const row_to_choose& row) {
  if (select.limits(0).room == unlimited) return 0;
  // each thread reads only what it writes itself: no barrier is needed
  return count_left(block, row.segments, row.zone, row.slots, [&](index_t id, index_t left) { row.tokens[id] = left; });
}

/// The eligible segments near those that a walk has taken. Of two the better is the one that the better segment brings.
struct neighbours_to_bring {
  segments_to_choose all;
  view<const level> levels;  // of the walk; they must not change while this is in use
  index_t reach = 0;

  __device__ index_t size() const { return all.size(); }
  __device__ index_t tokens(index_t id) const { return all.tokens(id); }
  __device__ bool taken(index_t id) const { return levels[id] == level::details; }
  __device__ votes_t key(index_t id) const {
    votes_t best = not_eligible;
    if (all.key(id) == not_eligible || taken(id)) return best;
    for (index_t side = -1; side <= 1; side += 2) {
      index_t left = reach;
      for (index_t other = id + side; left > 0 && other >= 0 && other < size(); other += side) {
        const votes_t votes = all.key(other);
        if (votes == not_eligible) continue;
        if (taken(other) && votes > best) best = votes;
        --left;
      }
    }
    return best;
  }
};

/// Device twin of `take_neighbours`. The host walks down the segments that were taken; among neighbours of equal keys
/// its order is that of ids too, since of two segments with equal votes the lower one comes first.
/// @param room  for the tokens of all that is taken, by the walk too
/// @pre   nobody else reads `row.tokens`, which is overwritten
/// @cost  as `best_walk`, each of whose keys costs O(reach) and the segments between that are not eligible; a barrier
template <index_t Threads>
__device__ void bring_neighbours(block_threads& block, best_scratch<Threads>& scratch, index_t reach, index_t room,
                                 const row_to_choose& row) {
  index_t taken = 0;  // tokens, by this thread; nobody has counted what is not limited
  for (index_t id = block.thread(); room < unlimited && id < row.levels.size(); id += Threads) {
    if (row.levels[id] == level::details) taken += row.tokens[id];
  }
  const index_t in_all = block.sum(taken);  // from here on the block sees the levels of the walk
  const neighbours_to_bring items{{row.votes, row.tokens}, row.levels, reach};
  const take_limits limits{.room = room < unlimited ? room - in_all : unlimited};
  best_walk<Threads, neighbours_to_bring> walk(block, scratch, items, limits, not_eligible);
  // The levels say which segments bring neighbours until all have been found.
  walk.each([&](index_t id, index_t part) {
    if (id < row.levels.size()) row.tokens[id] = part;
  });
  __syncthreads();
  for (index_t id = block.thread(); id < row.levels.size(); id += Threads) {
    const index_t part = row.tokens[id];
    if (part == 0) continue;
    row.levels[id] = level::details;
    if (part == unlimited) continue;
    row.selection->cut_segment = id;
    row.selection->cut_tokens = part;
  }
}

/// Makes one row from its votes. All `Threads` threads of a block call it; thread `id % Threads` alone reads what
/// belongs to segment `id`, and writes its level. The block sees levels and cut after its next barrier.
/// @param anyway  tokens that are attended whatever is chosen, as begin_choice or attended_anyway has counted them
/// @cost  as `best_walk`
template <index_t Threads, limited_selector Selector>
__device__ void choose_row(block_threads& block, best_scratch<Threads>& scratch, const Selector& select,
                           const row_to_choose& row, index_t anyway) {
  if (block.thread() == 0) *row.selection = {row.levels};
  const segments_to_choose items{row.votes, row.tokens};
  const take_limits limits = select.limits(anyway);
  best_walk<Threads, segments_to_choose> walk(block, scratch, items, limits, row.least);
  walk.each([&](index_t id, index_t part) {
    if (id >= row.levels.size()) return;
    const bool unwanted = row.votes[id] != not_eligible && row.votes[id] < row.least_attended;
    row.levels[id] = part > 0 ? level::details : unwanted ? level::dropped : level::summary;
    if (part == 0 || part == unlimited) return;
    row.selection->cut_segment = id;
    row.selection->cut_tokens = part;
  });
  if constexpr (brings_neighbours<Selector>) {
    if (select.neighbours > 0) bring_neighbours(block, scratch, select.neighbours, limits.room, row);
  }
}

inline constexpr index_t choose_threads = 256;

}  // namespace zoomr::inline v0

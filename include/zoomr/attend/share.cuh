// SPDX-License-Identifier: Apache-2.0
// L4. What several query tokens attend to, as one list: so that keys and values which they have in common are read
// once.
#pragma once

#include <zoomr/attend/resolve.cuh>
#include <zoomr/attend/token_list.cuh>

namespace zoomr {
inline namespace v0 {

/// The ends of ascending runs that do not touch, as one ascending list: first, last, first, last, ...
struct run_edges {
  view<const run> runs;

  ZOOMR_HD index count() const { return 2 * runs.size(); }
  ZOOMR_HD index operator[](index i) const { return i % 2 == 0 ? runs[i / 2].first : runs[i / 2].last; }
  /// How many lie before `value`.
  /// @cost  O(log runs)
  ZOOMR_HD index before(index value) const {
    index first = 0;
    index last = count();
    while (first < last) {
      const index middle = (first + last) / 2;
      if ((*this)[middle] < value) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first;
  }
  /// True if a run holds `slot`: an odd number of ends has been passed.
  ZOOMR_HD bool holds(index slot) const { return before(slot + 1) % 2 != 0; }
};

/// Where the list goes that query tokens share. Each array has room for twice their runs.
struct shared_list {
  view<run> runs;
  view<index> before;  // also holds the edges of all runs, while they are put in order
  view<unsigned> attending;
};

/// Puts the edges of all lists in order, each value once.
/// @return  how many there are
template <class Lists>
__device__ index order_edges(block_threads& block, const Lists& list, index count, view<index> to) {
  index all = 0;
  for (index j = 0; j < count; ++j) {
    const run_edges edges = list(j);
    for (index i = block.thread(); i < edges.count(); i += block.size()) {
      index rank = i;
      for (index other = 0; other < count; ++other) {  // of equal ones that of the lower list comes first
        if (other != j) rank += list(other).before(edges[i] + (other < j ? 1 : 0));
      }
      to[rank] = edges[i];
    }
    all += edges.count();
  }
  __syncthreads();
  index different = 0;
  index largest = -1;
  for (index begin = 0; begin < all; begin += block.size()) {
    const index i = begin + block.thread();
    const index value = i < all ? to[i] : -1;
    const scanned<index> earlier = block.max_before(value);
    const index before = earlier.before > largest ? earlier.before : largest;
    const scanned<index> place = block.sum_before<index>(value > before ? 1 : 0);
    if (value > before) to[different + place.before] = value;
    different += place.all;
    largest = earlier.all > largest ? earlier.all : largest;
  }
  __syncthreads();
  return different;
}

/// Joins the runs of `count` query tokens, at most 32: the slots between two adjacent edges are attended by the same of
/// them, and are a run of the shared list unless nobody attends to them. All threads call it.
/// @param list  list(j): run_edges of the j-th query token
/// @return      runs and tokens of the shared list, to all threads
/// @cost  O(runs * count * log runs / threads); 3 or 4 barriers for as many edges as there are threads
template <class Lists>
__device__ attended_size share_runs(block_threads& block, const Lists& list, index count, const shared_list& to) {
  const index edges = order_edges(block, list, count, to.before);
  attended_size size;
  for (index begin = 0; begin < edges; begin += block.size()) {
    const index i = begin + block.thread();
    run piece;
    unsigned attending = 0;
    if (i + 1 < edges) {
      piece = {to.before[i], to.before[i + 1]};
      for (index j = 0; j < count; ++j) attending |= list(j).holds(piece.first) ? 1u << j : 0u;
    }
    const bool read = attending != 0;
    const scanned<std::int64_t> sums = block.sum_before(read ? attended_size::one_run + piece.size() : 0);
    if (read) {  // never behind an edge that has yet to be looked at
      const attended_size at = size.plus(sums.before);
      to.runs[at.runs] = piece;
      to.before[at.runs] = at.tokens;
      to.attending[at.runs] = attending;
    }
    size = size.plus(sums.all);
  }
  return size;
}

}  // namespace v0
}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// L4. What several query tokens attend to, as one list: so that keys and values which they have in common are read
// once.
//
// query_tile_kernel (cache/device/launching/rows.cuh) joins the ranges of a draft's tokens after they have been
// resolved, and before gather_attend reads the joined list. Between two adjacent ends of any of the ranges all slots
// are attended by the same tokens: such pieces, each with a bit for each token, are the list.
#pragma once

#include <zoomr/attention/resolve.cuh>
#include <zoomr/attention/token_list.cuh>

namespace zoomr::inline v0 {

/// The ends of ascending ranges that do not touch, as one ascending list without repetitions: first, last, first, last,
/// ... As `last` is exclusive, a slot is in a range if the number of ends up to it is odd.
struct range_edges {
  view<const token_range> ranges;

  ZOOMR_HD index_t count() const { return 2 * ranges.size(); }
  ZOOMR_HD index_t operator[](index_t i) const { return i % 2 == 0 ? ranges[i / 2].first : ranges[i / 2].last; }
  /// How many are before `value`.
  /// @cost  O(log ranges)
  ZOOMR_HD index_t before(index_t value) const {
    index_t first = 0;
    index_t last = count();
    while (first < last) {
      const index_t middle = (first + last) / 2;
      if ((*this)[middle] < value) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first;
  }
  /// True if a range holds `slot`: an odd number of ends has been passed.
  ZOOMR_HD bool holds(index_t slot) const { return before(slot + 1) % 2 != 0; }
};

/// Where the list goes that query tokens share. Each array has room for twice their ranges.
struct shared_list {
  view<token_range> ranges;
  view<index_t> before;  // also holds the edges of all ranges, while they are put in order
  view<unsigned> attending;
};

/// Puts the edges of all lists in order, each value once: an edge's place is its number in its own list plus how many
/// edges of the others come before it. All threads call it; they see the result.
/// @param list   list(j): range_edges of the j-th query token, j in [0, count)
/// @param to     [edges of all lists]  out
/// @return       how many there are, to all threads
/// @cost  O(edges * count * log ranges / threads); 2 barriers for as many edges as there are threads, and 2
template <class Lists>
__device__ index_t order_edges(block_threads& block, const Lists& list, index_t count, view<index_t> to) {
  index_t edge_count = 0;
  for (index_t j = 0; j < count; ++j) {
    const range_edges edges = list(j);
    for (index_t i = block.thread(); i < edges.count(); i += block.size()) {
      index_t rank = i;
      for (index_t other = 0; other < count; ++other) {  // of equal ones that of the lower list comes first
        if (other != j) rank += list(other).before(edges[i] + (other < j ? 1 : 0));
      }
      to[rank] = edges[i];
    }
    edge_count += edges.count();
  }
  __syncthreads();
  index_t different = 0;
  index_t largest = -1;
  for (index_t begin = 0; begin < edge_count; begin += block.size()) {
    const index_t i = begin + block.thread();
    const index_t value = i < edge_count ? to[i] : -1;
    const scanned<index_t> earlier = block.max_before(value);
    const index_t before = earlier.before > largest ? earlier.before : largest;
    const scanned<index_t> place = block.sum_before<index_t>(value > before ? 1 : 0);
    if (value > before) to[different + place.before] = value;
    different += place.all;
    largest = earlier.all > largest ? earlier.all : largest;
  }
  __syncthreads();
  return different;
}

/// Joins the ranges of `count` query tokens, at most 32: the slots between two adjacent edges are attended by the same
/// of them, and are a range of the shared list unless no query attends to them. All threads call it.
/// @param list  list(j): range_edges of the j-th query token
/// @return      ranges and tokens of the shared list, to all threads
/// @cost  O(ranges * count * log ranges / threads); 3 barriers for as many edges as there are threads, and 2
template <class Lists>
__device__ attended_size join_ranges(block_threads& block, const Lists& list, index_t count, const shared_list& to) {
  const index_t edges = order_edges(block, list, count, to.before);
  attended_size size;
  for (index_t begin = 0; begin < edges; begin += block.size()) {
    const index_t i = begin + block.thread();
    token_range piece;
    unsigned attending = 0;
    if (i + 1 < edges) {
      piece = {to.before[i], to.before[i + 1]};
      for (index_t j = 0; j < count; ++j) attending |= list(j).holds(piece.first) ? 1u << j : 0u;
    }
    const bool read = attending != 0;
    const scanned<std::int64_t> sums = block.sum_before(read ? attended_size::one_range + piece.size() : 0);
    if (read) {  // never after an edge that has yet to be looked at
      const attended_size at = size.plus(sums.before);
      to.ranges[at.ranges] = piece;
      to.before[at.ranges] = at.tokens;
      to.attending[at.ranges] = attending;
    }
    size = size.plus(sums.all);
  }
  return size;
}

}  // namespace zoomr::inline v0

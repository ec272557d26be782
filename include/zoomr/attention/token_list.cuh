// SPDX-License-Identifier: Apache-2.0
// L4. Where the attended tokens of one query are: keys and values of a layer, and lists of slots.
//
// A list gives the slot in the pool of its i-th token. What attends (gather_attend) uses only `count` and `slot` of a
// list, or `shared`: so other lists can be made outside, by an engine or a benchmark.
#pragma once

#include <zoomr/core/device/device.cuh>
#include <zoomr/core/view.hpp>
#include <zoomr/policy/slot_map.hpp>

#include <concepts>  // std::same_as

namespace zoomr::inline v0 {

/// Where the pool has a slot of a sequence: the number of its page times that of a page's tokens, plus its place there.
/// @param pages  [pages of the sequence]  which have 2^page_bits tokens each
ZOOMR_HD inline index_t pool_slot(view<const index_t> pages, index_t slot, index_t page_bits) {
  return pages[slot >> page_bits] << page_bits | (slot & ((1 << page_bits) - 1));
}

/// Keys and values of one layer on the device, by slot of the pool: zoomr's pages, or an engine's own.
/// @tparam Number  const to read only
template <class Number>
struct paged_layer {
  Number* keys = nullptr;         // slot 0 of KV head 0; everything is aligned to 16 bytes
  Number* values = nullptr;       // the same of the values
  std::int64_t page_stride = 0;   // elements from page to page
  std::int64_t head_stride = 0;   // elements from KV head to KV head
  std::int64_t token_stride = 0;  // elements from token to token of a page
  index_t page_bits = 4;          // a page has 2^page_bits tokens

  /// Elements before the token in `slot` of the pool.
  ZOOMR_HD std::int64_t offset(index_t slot, index_t kv_head) const {
    const index_t in_page = slot & ((1 << page_bits) - 1);
    return (slot >> page_bits) * page_stride + kv_head * head_stride + in_page * token_stride;
  }
  ZOOMR_HD paged_layer<const Number> read_only() const {
    return {keys, values, page_stride, head_stride, token_stride, page_bits};
  }
};
template <class T>
using stored_layer = paged_layer<const T>;

/// The same where some pages are in an arena on the device, and the others in memory of the host that the device can
/// read. Slots below `arena_end` are those of the arena; slot arena_end + s is slot s of the host.
///
/// Where each KV head has pages of its own, one of them takes the room of any KV head in a page of the arena: its
/// number is that of the page times 2^part_bits, plus that of the KV head in whose room it is.
template <class T>
struct tiered_layer : stored_layer<T> {
  index_t arena_end = 0;
  std::int64_t to_host = 0;  // elements from the arena to the host's pages: both are in one address space
  index_t part_bits = 0;     // 0: pages are those of all KV heads

  tiered_layer() = default;
  /// @param arena  as of a layer that is there as a whole
  /// @param host   slot 0 of KV head 0 in the host's memory
  tiered_layer(const stored_layer<T>& arena, const T* host, index_t end, index_t bits = 0)
      : stored_layer<T>(arena), arena_end(end), part_bits(bits) {
    const auto from = reinterpret_cast<std::uintptr_t>(arena.keys);
    to_host =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(host) - from) / static_cast<std::int64_t>(sizeof(T));
  }
  ZOOMR_HD std::int64_t offset(index_t slot, index_t kv_head) const {
    const bool in_arena = slot < arena_end;
    if (in_arena && part_bits > 0) {
      const index_t page = slot >> this->page_bits, in_page = slot & ((1 << this->page_bits) - 1);
      kv_head = page & ((1 << part_bits) - 1);
      slot = page >> part_bits << this->page_bits | in_page;
    }
    return stored_layer<T>::offset(in_arena ? slot : slot - arena_end, kv_head) + (in_arena ? 0 : to_host);
  }
};

/// Tokens in ranges of a sequence's slots, whose pages a table names: what resolve has found. Over tiers the table
/// names places instead of pages, in the arena or after it (tiered_layer).
struct tokens_of_ranges {
  view<const token_range> ranges;  // [ranges]  ascending
  view<const index_t> before;      // [ranges]  tokens in the ranges before
  view<const index_t> pages;       // [pages of the sequence]
  index_t tokens = 0;
  index_t page_bits = 4;

  ZOOMR_HD index_t count() const { return tokens; }
  /// The slot in the pool of the `i`-th token.
  /// @cost  O(log ranges)
  ZOOMR_HD index_t slot(index_t i) const { return slot_in(range_of(i), i); }
  /// The same in the sequence.
  ZOOMR_HD index_t sequence_slot(index_t i) const { return sequence_slot_in(range_of(i), i); }

 protected:
  /// With `at` the range that holds the `i`-th token.
  ZOOMR_HD index_t slot_in(index_t at, index_t i) const { return pool_slot(pages, sequence_slot_in(at, i), page_bits); }
  ZOOMR_HD index_t sequence_slot_in(index_t at, index_t i) const { return ranges[at].first + i - before[at]; }
  /// The range of the `i`-th token: the last whose `before` is at most i.
  ZOOMR_HD index_t range_of(index_t i) const {
    index_t first = 0;
    index_t last = ranges.size();
    while (last - first > 1) {
      const index_t middle = (first + last) / 2;
      if (before[middle] <= i) {
        first = middle;
      } else {
        last = middle;
      }
    }
    return first;
  }
};

/// A token that several query tokens read together, at most 32 of them.
struct shared_token {
  index_t slot = 0;
  unsigned attending = 0;  // bit j: the j-th of them attends to it
};

/// A list that has for each token which query tokens attend to it.
template <class Tokens>
concept query_tile = requires(const Tokens& list, index_t i) {
  { list.shared(i) } -> std::same_as<shared_token>;
};

/// Runs of which each is attended by some of the query tokens that read together: what one or more of them attend to.
struct tile_of_ranges : tokens_of_ranges {
  view<const unsigned> attending;  // [ranges]; empty: there is one query token

  /// @cost  O(log ranges)
  ZOOMR_HD shared_token shared(index_t i) const {
    const index_t at = range_of(i);
    return {slot_in(at, i), attending.size() == 0 ? 1u : attending[at]};
  }
};

/// What one KV head reads for a query token, or, with `query_tile`, for a few that follow one another.
/// Default-constructed, with no heads, it means that there is nothing to do.
template <class Tokens>
struct attending_row {
  Tokens tokens;
  index_t token = 0;       // packed, of `queries` and `out`
  index_t kv_head = 0;     // whose keys and values
  index_t first_head = 0;  // query heads [first_head, first_head + heads)
  index_t heads = 0;
  index_t sharing = 1;   // query tokens [token, token + sharing) read together; more than one only with query_tile
  slot_map slots = {};   // of the KV head: which positions a bias by distance counts
  index_t position = 0;  // of the first query token; read only for that
};

}  // namespace zoomr::inline v0

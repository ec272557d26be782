// SPDX-License-Identifier: Apache-2.0
// L6. The table that a step uploads: what the host has planned. Plain data: host and device see the same.
//
// The host fills its lists: of table 0 in `begin`, of table 1 in `needs_second_pass`, of table 2 in `commit`. Packed
// without gaps (uploads.cuh), one copy brings them to the device, where the kernels of its pass read them and none
// writes them. What a graph replays finds there how much there is to do; the arguments of its kernels stay as they were
// captured.
#pragma once

#include <zoomr/cache/device/eviction/eviction_state.cuh>
#include <zoomr/cache/tokens/query_positions.hpp>
#include <zoomr/policy/segment.hpp>
#include <zoomr/policy/zones.hpp>

#include <cstring>  // std::memcpy
#include <vector>   // std::vector

namespace zoomr::inline v0::detail {

/// One token of a pass, as the host has planned it. Positions and slots are those of its sequence.
///
/// Its index in the table names its rows of scores, votes and ranges (layout.cuh); where choices do not stay active it
/// is also the place of the token's own choice. In table 2 a token is the last one of a prompt that has ended, or of an
/// item that was passed whole, and `row` is its sequence: its queries are in `common_arrays::choice_queries`.
struct device_token {
  index_t sequence = 0;
  index_t position = 0;
  index_t slot = 0;      // where its key goes
  index_t row = 0;       // of the queries
  index_t segments = 0;  // closed before this step
  index_t sums = 1;      // queries in the running sum, this one included
  index_t reads = -1;    // place of the choice that it attends under; -1: there is none yet
  index_t chooses = -1;  // place of the choice that it makes; -1: it makes none
  held_slots held;       // of its sequence
  zone_bounds zone;      // of its query
  bool dense = false;    // attends to everything, in all layers
  bool prompt = false;
  bool noted = false;       // its queries make the choice of the commit
  query_positions scoring;  // by which heads vote for its choice
};

/// A segment that is new to the device: `prepare_kernel` enters it among the segments of its sequence,
/// `summarize_kernel` summarises it in each KV lane. `held` is what the KV lanes hold then: after an eviction, if the
/// same commit makes one.
struct device_closing {
  index_t sequence = 0;
  index_t id = 0;  // among the segments of its sequence, ascending
  segment closed;
  held_slots held;  // of the sequence
};

/// A sequence whose segments are all summarised again, since its KV lanes hold other tokens than before. No part of a
/// table: a launch takes it as an argument (choice_launches::summarize_again).
struct device_resummarize {
  index_t sequence = -1;  // -1: none
  index_t segments = 0;
  held_slots held;
};

/// A page of a sequence that is new to the device: entry `at` of its page table. `prepare_kernel` enters it.
struct device_page {
  index_t sequence = 0;
  index_t at = 0;
  index_t page = 0;  // of the pool
};

/// A page that a sequence has instead of one that it shared: a copy of that, which the step may write.
struct device_page_copy {
  index_t sequence = 0;
  index_t at = 0;  // entry of its page table
  index_t from = 0, to = 0;
};

/// Tokens of one sequence, one after the other, whose queries read keys and values together: at most
/// `device_sizes::tile_tokens` of them. With one token there is nothing to share.
struct device_query_tile {
  index_t first = 0;  // of the table's tokens
  index_t tokens = 0;
};

/// How many entries each list has; a block whose index is not below its count has nothing to do.
struct device_counts {
  index_t tokens = 0;
  index_t tiles = 0;
  index_t closings = 0;
  index_t pages = 0;
  index_t copies = 0;
};

/// A table as kernels find it: the lists are after `counts`, one after the other, as table_lists::pack leaves them.
struct device_table {
  device_counts* counts = nullptr;
  device_token* tokens = nullptr;  // [tokens]  directly after `counts`

  /// [tiles]  those after the prompt first
  ZOOMR_HD const device_query_tile* tiles() const {
    return reinterpret_cast<const device_query_tile*>(tokens + counts->tokens);
  }
  /// [closings]
  ZOOMR_HD const device_closing* closings() const {
    return reinterpret_cast<const device_closing*>(tiles() + counts->tiles);
  }
  /// [pages]
  ZOOMR_HD const device_page* pages() const {
    return reinterpret_cast<const device_page*>(closings() + counts->closings);
  }
  /// [copies]
  ZOOMR_HD const device_page_copy* copies() const {
    return reinterpret_cast<const device_page_copy*>(pages() + counts->pages);
  }
};

/// The tables of a step: one for each pass, and one of what its commit leaves for the device to do.
enum class step_table : index_t { first_pass, second_pass, commit };
constexpr index_t step_tables = 3;
constexpr step_table table_for_pass(index_t pass) {
  return pass == 0 ? step_table::first_pass : step_table::second_pass;
}

/// A value for each table of a step.
template <class Value>
struct step_table_values {
  Value values[std::size_t{step_tables}];

  Value& operator[](step_table table) { return values[static_cast<std::size_t>(table)]; }
  const Value& operator[](step_table table) const { return values[static_cast<std::size_t>(table)]; }
};

/// The same on the host, while it is filled. All lists have room from the start: filling them allocates nothing.
struct table_lists {
  std::vector<device_token> tokens;
  std::vector<device_query_tile> tiles;
  std::vector<device_closing> closings;
  std::vector<device_page> pages;
  std::vector<device_page_copy> copies;

  /// @param most  entries of each list
  explicit table_lists(const device_counts& most) {
    tokens.reserve(static_cast<std::size_t>(most.tokens));
    tiles.reserve(static_cast<std::size_t>(most.tiles));
    closings.reserve(static_cast<std::size_t>(most.closings));
    pages.reserve(static_cast<std::size_t>(most.pages));
    copies.reserve(static_cast<std::size_t>(most.copies));
  }
  /// Of a table whose lists have so many entries.
  static byte_count bytes(const device_counts& counts) {
    constexpr auto list_bytes = [](index_t count, std::size_t size) {
      return std::int64_t{count} * static_cast<byte_count>(size);
    };
    return static_cast<byte_count>(sizeof(device_counts)) + list_bytes(counts.tokens, sizeof(device_token)) +
           list_bytes(counts.tiles, sizeof(device_query_tile)) + list_bytes(counts.closings, sizeof(device_closing)) +
           list_bytes(counts.pages, sizeof(device_page)) + list_bytes(counts.copies, sizeof(device_page_copy));
  }

  device_counts counts() const {
    const auto count = [](const auto& list) { return static_cast<index_t>(list.size()); };
    return {count(tokens), count(tiles), count(closings), count(pages), count(copies)};
  }
  void clear() { tokens.clear(), tiles.clear(), closings.clear(), pages.clear(), copies.clear(); }

  /// Writes bytes(counts()) bytes: the counts, and the entries of each list, without gaps.
  void pack(std::byte* to) const {
    const auto put = [&](const void* from, std::size_t size) {
      if (size > 0) std::memcpy(to, from, size);
      to += size;
    };
    const device_counts listed = counts();
    put(&listed, sizeof listed);
    const auto put_all = [&](const auto& list) { put(list.data(), list.size() * sizeof(list[0])); };
    put_all(tokens);
    put_all(tiles);
    put_all(closings);
    put_all(pages);
    put_all(copies);
  }
};

static_assert(alignof(device_counts) == 4 && alignof(device_token) == 4 && alignof(device_query_tile) == 4 &&
                  alignof(device_closing) == 4 && alignof(device_page) == 4 && alignof(device_page_copy) == 4,
              "lists lie one behind the other, without gaps");

}  // namespace zoomr::inline v0::detail

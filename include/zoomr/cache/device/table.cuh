// SPDX-License-Identifier: Apache-2.0
// L6. The table that a step uploads: what the host has planned. Plain data: host and device see the same.
//
// The host fills a table in pinned memory (uploads.cuh): table 0 in `begin`, table 1 in `needs_second_pass`, table 2 in
// `commit`. One copy brings it to the device, where the kernels of its pass read it and none writes it. What a graph
// replays finds there how much there is to do; the arguments of its kernels stay as they were captured.
#pragma once

#include <zoomr/cache/device/eviction_state.cuh>
#include <zoomr/policy/segment.hpp>
#include <zoomr/policy/zones.hpp>

namespace zoomr {
inline namespace v0 {
namespace detail {

/// One token of a pass, as the host has planned it. Positions and slots are those of its sequence.
///
/// Its index in the table names its rows of scores, votes and ranges (layout.cuh); where choices do not stay active it
/// is also the place of the token's own choice. In table 2 a token is the last one of a prompt that has ended, and
/// `row` is its sequence: its queries lie in `common_arrays::asking`.
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
  bool noted = false;       // it ends a prompt, and its queries make the first choice
  bool if_drifted = false;  // it chooses only where its query has turned away from that of the active choice
};

/// A segment that the device does not know yet: `prepare_kernel` enters it among the segments of its sequence,
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

/// A page that the tokens of a step lie in: slots [16 * at, 16 * (at + 1)) of the sequence are those of page `page`.
/// `prepare_kernel` enters it.
struct device_page {
  index_t sequence = 0;
  index_t at = 0;
  index_t page = 0;  // of the pool
};

/// Tokens of one sequence, one after the other, whose queries read keys and values together: at most
/// `device_sizes::tile_tokens` of them. With one token there is nothing to share.
struct device_query_tile {
  index_t first = 0;  // of the table's tokens
  index_t tokens = 0;
};

/// How many entries of each list are in use; a block whose index is not below its count has nothing to do.
struct device_counts {
  index_t tokens = 0;
  index_t closings = 0;
  index_t pages = 0;
  index_t tiles = 0;
};

/// What a step uploads, in one piece. The same lists on the host, pinned, and on the device.
///
/// `counts` is the first of them, the others follow in this order with room for as many entries as any pass may have
/// (`carve_table`). The copy takes all of the room.
struct device_table {
  device_counts* counts = nullptr;
  device_token* tokens = nullptr;      // [max_batched_tokens]
  device_closing* closings = nullptr;  // [most_closings]
  device_page* pages = nullptr;        // [most_pages]
  device_query_tile* tiles = nullptr;  // [max_batched_tokens]  those after the prompt first
};

}  // namespace detail
}  // namespace v0
}  // namespace zoomr

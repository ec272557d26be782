// SPDX-License-Identifier: Apache-2.0
// L6. The table that a step uploads: what the host has planned. Plain data: host and device see the same.
#pragma once

#include <zoomr/cache/device/eviction_state.cuh>
#include <zoomr/policy/segment.hpp>
#include <zoomr/policy/zones.hpp>

namespace zoomr {
inline namespace v0 {
namespace detail {

/// One token of a pass, as the host has planned it.
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

/// A segment that has closed since the last upload: it goes into the table, and is summarised.
struct device_closing {
  index_t sequence = 0;
  index_t id = 0;
  segment closed;
  held_slots held;  // of the sequence
};

/// A sequence whose segments are all summarised again, since its lanes hold other tokens than before.
struct device_resummarize {
  index_t sequence = -1;  // -1: none
  index_t segments = 0;
  held_slots held;
};

/// A page that the tokens of a step lie in.
struct device_page {
  index_t sequence = 0;
  index_t at = 0;
  index_t page = 0;
};

/// Tokens of one sequence, one after the other, whose queries read keys and values together.
struct device_query_tile {
  index_t first = 0;  // of the table's tokens
  index_t tokens = 0;
};

struct device_counts {
  index_t tokens = 0;
  index_t closings = 0;
  index_t pages = 0;
  index_t tiles = 0;
};

/// What a step uploads, in one piece. The same lists on the host, pinned, and on the device.
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

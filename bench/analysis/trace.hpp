// SPDX-License-Identifier: Apache-2.0
// What `zoomr-decode --trace-pages FILE` has written, in memory.
#pragma once

#include <zoomr/paging/tiers/tiered_pool.hpp>

#include <array>   // std::array
#include <map>     // std::map
#include <vector>  // std::vector

namespace tier_trace {

using zoomr::index_t;
/// For its rules.
using pool = zoomr::tiered_pool<float, zoomr::cyclic_mru, zoomr::sync_transfers>;

/// A layer, or a KV head of it.
struct reader {
  index_t layer = 0;
  index_t head = 0;
  friend auto operator<=>(const reader&, const reader&) = default;
};

/// Segments, best first.
struct choice {
  std::vector<index_t> chosen;
  std::vector<index_t> runners_up;
  bool made() const { return !chosen.empty() || !runners_up.empty(); }
};

/// What is read when a token passes a layer.
struct reading {
  reader who;
  bool begins_pass = true;  // of a layer
  choice first_served;      // by this reading, if one was made
  std::vector<index_t> blocks;
};

/// Where the details of a segment lie.
struct segment {
  index_t first = 0;           // page
  index_t last = 0;            // page
  std::size_t known_from = 0;  // this reading on
};

struct trace {
  index_t layers = 0;
  std::int64_t block_bytes = 0;
  std::int64_t visits = 0;
  std::int64_t passes = 0;  // of a layer
  std::vector<reading> readings;
  std::map<index_t, segment> segments;
  std::map<std::array<index_t, 3>, index_t> numbers;  // of blocks, as they come: by layer, KV head and page

  index_t blocks() const { return static_cast<index_t>(numbers.size()); }
  /// Tokens that have passed all layers, second passes added.
  double circles() const { return static_cast<double>(passes) / layers; }
  index_t number(reader of, index_t page) {
    return numbers.try_emplace({of.layer, of.head, page}, static_cast<index_t>(numbers.size())).first->second;
  }
};

}  // namespace tier_trace

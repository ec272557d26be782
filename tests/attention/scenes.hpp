// SPDX-License-Identifier: Apache-2.0
// Random sequences with segments, zones, and perhaps a KV lane that has kept only some of its tokens.
#pragma once

#include <core/random.hpp>
#include <zoomr/policy/slot_map.hpp>

#include <algorithm>  // std::max, std::min

namespace zoomr_test {

using zoomr::index_t;
using zoomr::segment;
using zoomr::slot_map;
using zoomr::zone_bounds;

/// A sequence of `tokens` tokens, its segments, and the zones of its last one.
struct selection_scene {
  index_t tokens = 0;
  std::vector<segment> segments;
  std::vector<index_t> kept;  // empty: everything
  index_t compacted_end = 0;
  zone_bounds zone;

  slot_map slots() const { return {kept, compacted_end}; }
};

/// One segment in two has a summary of its own, which may be all of it or nothing; some lie apart.
inline selection_scene random_scene(unit::random& random, index_t segments) {
  selection_scene made;
  for (index_t id = 0; id < segments; ++id) {
    const index_t begin = made.tokens + (random.chance(0.1) ? random.below(5) : 0);
    const index_t end = begin + random.between(1, 17);
    const index_t split = random.chance(0.5) ? end : random.between(begin, end);
    made.segments.push_back({begin, split, end, begin, end, end - 1});
    made.tokens = end;
  }
  made.tokens += random.between(1, 20);
  made.compacted_end = random.between(1, made.tokens);
  const double share = random.chance(0.5) ? 0.4 : 0.02;
  for (index_t p = 0; p < made.compacted_end && random.chance(0.999); ++p) {
    if (random.chance(share)) made.kept.push_back(p);
  }
  if (random.chance(0.4)) made.kept.clear();
  const index_t reach = random.chance(0.05) ? made.tokens : std::min(made.tokens, 30);
  made.zone.end = made.tokens;
  made.zone.front = random.chance(0.3) ? 0 : random.below(reach + 1);
  made.zone.back = random.between(std::max(made.zone.front, made.tokens - reach), made.tokens);
  if (random.chance(0.3)) made.zone = made.zone.seen_through(random.between(1, made.tokens + 3));
  return made;
}

}  // namespace zoomr_test

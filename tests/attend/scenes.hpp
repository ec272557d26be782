// SPDX-License-Identifier: Apache-2.0
// Random sequences with segments, zones, and perhaps a lane that has retained only some of its tokens.
#pragma once

#include <core/random.hpp>
#include <zoomr/slots.hpp>

#include <algorithm>  // std::max, std::min

namespace zoomr_test {

using zoomr::index;
using zoomr::segment;
using zoomr::slot_map;
using zoomr::zone_bounds;

/// A sequence of `tokens` tokens, its segments, and the zones of its last one.
struct scene {
  index tokens = 0;
  std::vector<segment> segments;
  std::vector<index> kept;  // empty: everything
  index compacted_end = 0;
  zone_bounds zone;

  slot_map slots() const { return {kept, compacted_end}; }
};

/// One segment in two has a summary of its own, which may be all of it or nothing; some lie apart.
inline scene random_scene(unit::random& random, index segments) {
  scene made;
  for (index id = 0; id < segments; ++id) {
    const index begin = made.tokens + (random.chance(0.1) ? random.below(5) : 0);
    const index end = begin + random.between(1, 17);
    const index split = random.chance(0.5) ? end : random.between(begin, end);
    made.segments.push_back({begin, split, end, begin, end, end - 1});
    made.tokens = end;
  }
  made.tokens += random.between(1, 20);
  made.compacted_end = random.between(1, made.tokens);
  const double share = random.chance(0.5) ? 0.4 : 0.02;
  for (index p = 0; p < made.compacted_end && random.chance(0.999); ++p) {
    if (random.chance(share)) made.kept.push_back(p);
  }
  if (random.chance(0.4)) made.kept.clear();
  const index reach = random.chance(0.05) ? made.tokens : std::min(made.tokens, 30);
  made.zone.end = made.tokens;
  made.zone.front = random.chance(0.3) ? 0 : random.below(reach + 1);
  made.zone.back = random.between(std::max(made.zone.front, made.tokens - reach), made.tokens);
  return made;
}

}  // namespace zoomr_test

// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of key_cuboid.hpp.
#pragma once

#include <zoomr/policy/summarize/by_dimension.cuh>
#include <zoomr/policy/summarize/key_cuboid.hpp>

namespace zoomr::inline v0 {

/// Thread d makes the dimensions d, d + threads, ...
/// @cost  reads each key twice
template <class Cue, class Keep>
__device__ void make_summary(const key_cuboid&, const Cue& cue, index_t head_dim, block_threads& block,
                             summary_scratch<key_cuboid>&, Keep keep) {
  for (index_t d = block.thread(); d < head_dim; d += block.size()) {
    const cells<2> sides = key_cuboid::of_dimension(cue.count(), [&](index_t t) { return cue.key(t, d); });
    keep(d, 0, sides.row[0]);
    keep(d, 1, sides.row[1]);
  }
}

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L3. What may stand for a segment, as tags: a scorer reads exactly the summaries that a summarizer makes.
// For each lane they lie as [segment][dim][rows], contiguous and append-only.
#pragma once

#include <zoomr/core/types.hpp>

#include <cstddef>  // std::size_t

namespace zoomr {
inline namespace v0 {

/// The numbers that stand for one dimension of one segment.
template <index Rows>
struct cells {
  float row[std::size_t{Rows > 0 ? Rows : 1}] = {};
};

namespace summary {
struct none {  ///< nothing: segments cannot be scored
  static constexpr index rows = 0;
};
struct mean {  ///< row[0] = mean of the cue's keys
  static constexpr index rows = 1;
};
struct box {  ///< row[0] = smallest, row[1] = largest key of the cue, elementwise
  static constexpr index rows = 2;
};
}  // namespace summary

}  // namespace v0
}  // namespace zoomr

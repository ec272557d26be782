// SPDX-License-Identifier: Apache-2.0
// L3. What may stand for a segment, as tags: a scorer reads exactly the summaries that a summarizer makes.
// For each KV lane they lie as [segment][dim][rows], contiguous and append-only.
#pragma once

#include <zoomr/core/storage.hpp>

#include <cstddef>      // std::size_t
#include <type_traits>  // std::is_same_v

namespace zoomr {
inline namespace v0 {

/// The numbers that stand for one dimension of one segment, in float, whatever the index keeps.
template <index_t Rows>
struct cells {
  float row[std::size_t{Rows > 0 ? Rows : 1}] = {};
};

namespace summary {
struct none {  ///< nothing: segments cannot be scored
  static constexpr index_t rows = 0;
};
struct mean {  ///< row[0] = mean of the cue's keys
  static constexpr index_t rows = 1;
};
struct box {  ///< row[0] = lower, row[1] = upper side of a box around the cue's keys
  static constexpr index_t rows = 2;

  /// In fewer bits it must still hold all keys that it holds.
  template <class Number>
  ZOOMR_HD static constexpr Number stored(index_t row, float side) {
    return row == 0 ? from_float_down<Number>(side) : from_float_up<Number>(side);
  }
};
}  // namespace summary

/// One number of a summary as the index keeps it: as its tag says, or else the nearest. Host and device write the index
/// through this alone, so that its bits are the same.
template <class Summary, class Number>
ZOOMR_HD constexpr Number stored_number(index_t row, float value) {
  if constexpr (std::is_same_v<Number, float>) {
    return value;
  } else if constexpr (requires { Summary::template stored<Number>(row, value); }) {
    return Summary::template stored<Number>(row, value);
  } else {
    return from_float<Number>(value);
  }
}

}  // namespace v0
}  // namespace zoomr

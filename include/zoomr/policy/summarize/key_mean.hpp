// SPDX-License-Identifier: Apache-2.0
// L4. The mean key.
#pragma once

#include <zoomr/math/functions.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// The mean of the cue's keys, rotated as they are stored.
///
/// Keys are added in ascending order, then divided by their number. If eviction has left no token of the cue the mean
/// is NaN, so that the segment ranks last.
/// @cost    1 flop for each key and dimension, once, when the segment closes
/// @source  ZoomR, arXiv:2604.10898 (cue = summary); SentenceKV, arXiv:2504.00970 (cue = sentence): as published
struct key_mean {
  using role = role::summarizer;
  static constexpr const char* name = "key_mean";
  using summary = summary::mean;

  ZOOMR_HD constexpr cells<1> open() const { return {}; }
  ZOOMR_HD constexpr void fold(cells<1>& sum, float key) const { sum.row[0] += key; }
  ZOOMR_HD constexpr void close(cells<1>& sum, index_t count) const {
    sum.row[0] = quotient(sum.row[0], static_cast<float>(count));
  }
  friend constexpr bool operator==(const key_mean&, const key_mean&) = default;
};

static_assert(summarizer<key_mean>);

}  // namespace zoomr::inline v0

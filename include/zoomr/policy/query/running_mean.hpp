// SPDX-License-Identifier: Apache-2.0
// L4. Segments are scored by the sentence that is being written.
#pragma once

#include <zoomr/math/functions.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// The mean of the queries of the open segment so far, this token's included; of its first token, that one.
/// Only generated tokens count.
/// @source  SentenceKV, arXiv:2504.00970: as published
struct running_mean {
  using role = role::query_source;
  static constexpr const char* name = "running_mean";
  static constexpr bool sums = true;

  /// One dimension: the sum over the open segment, and how many queries are in it, at least this token's own. Sums are
  /// in float, in ascending order; the cache keeps one for each of the last tokens, so that rollback needs no
  /// subtraction.
  ZOOMR_HD constexpr float query(float, float sum, index_t count) const {
    return quotient(sum, static_cast<float>(count));
  }
  friend constexpr bool operator==(const running_mean&, const running_mean&) = default;
};

static_assert(query_source<running_mean>);

}  // namespace zoomr::inline v0

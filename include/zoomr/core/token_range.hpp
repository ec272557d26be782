// SPDX-License-Identifier: Apache-2.0
// L1. Consecutive tokens.
#pragma once

#include <zoomr/core/types.hpp>

namespace zoomr::inline v0 {

/// Consecutive tokens [first, last), in positions or in slots, which depends on the owner. Ranges may be made empty,
/// even with last < first; lists of ranges drop these.
struct token_range {
  index_t first = 0;
  index_t last = 0;

  ZOOMR_HD constexpr index_t size() const { return last - first; }
  friend constexpr bool operator==(const token_range&, const token_range&) = default;
};

namespace detail {

/// Where a bound is once the tokens of `erased` are gone: after them so many less, within them where they began.
constexpr index_t without(token_range erased, index_t bound) {
  if (bound <= erased.first) return bound;
  return bound < erased.last ? erased.first : bound - erased.size();
}

}  // namespace detail

}  // namespace zoomr::inline v0

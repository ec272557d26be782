// SPDX-License-Identifier: Apache-2.0
// L1. Consecutive tokens.
#pragma once

#include <zoomr/core/types.hpp>

namespace zoomr {
inline namespace v0 {

/// Consecutive tokens [first, last), in positions or in slots; which of them, its owner says. Whoever makes ranges may
/// make empty ones, even with last < first; lists of ranges drop them.
struct token_range {
  index_t first = 0;
  index_t last = 0;

  ZOOMR_HD constexpr index_t size() const { return last - first; }
  friend constexpr bool operator==(const token_range&, const token_range&) = default;
};

}  // namespace v0
}  // namespace zoomr

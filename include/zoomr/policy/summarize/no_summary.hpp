// SPDX-License-Identifier: Apache-2.0
// L4. No summaries: the index takes no memory, and policies that attend zones alone need none.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Nothing stands for a segment: it can be attended, not scored. compose() refuses a selector that would choose.
struct no_summary {
  using role = role::summarizer;
  static constexpr const char* name = "no_summary";
  using summary = summary::none;

  ZOOMR_HD constexpr cells<0> open() const { return {}; }
  ZOOMR_HD constexpr void fold(cells<0>&, float) const {}
  ZOOMR_HD constexpr void close(cells<0>&, index_t) const {}
  friend constexpr bool operator==(const no_summary&, const no_summary&) = default;
};

static_assert(summarizer<no_summary>);

}  // namespace zoomr::inline v0

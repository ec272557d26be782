// SPDX-License-Identifier: Apache-2.0
// L4. Nothing is evicted.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Keeps each token: slots are positions, and no query is observed. Pages may go all the same, where a placement frees
/// what no query can reach (`placement::frees_unreachable`).
struct keep_all {
  using role = role::evictor;
  static constexpr const char* name = "keep_all";
  static constexpr bool observes = false;

  ZOOMR_HD constexpr index_t kept(index_t tokens) const { return tokens; }
  friend constexpr bool operator==(const keep_all&, const keep_all&) = default;
};

static_assert(evictor<keep_all>);

}  // namespace zoomr::inline v0

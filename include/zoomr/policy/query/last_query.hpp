// SPDX-License-Identifier: Apache-2.0
// L4. Segments are scored by the token's own query.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// The query of the token that is being decoded, each query head's own, rotated as the engine gives it. No sums
/// are kept for it.
struct last_query {
  using role = role::query_source;
  static constexpr const char* name = "last_query";
  static constexpr bool sums = false;

  ZOOMR_HD constexpr float query(float query, float, index_t) const { return query; }
  friend constexpr bool operator==(const last_query&, const last_query&) = default;
};

static_assert(query_source<last_query>);

}  // namespace zoomr::inline v0

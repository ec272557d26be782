// SPDX-License-Identifier: Apache-2.0
// L4. When the query has turned away. Whether it has is known only in the pass, so that nothing can be planned on it.
//
//   q . p < cosine * |q| |p|,   q the query that asks, p the one that has made the active choice
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Chooses again when the asking query has turned away from that of the last choice: when their cosine falls
/// below `cosine`. The queries of all heads that share a row of the selection are taken as one vector; one
/// selection for all layers serves the following tokens. Drafts are one token long.
/// A query that is not a number has turned away. After a rollback p is again that of the choice which is active then.
/// @cost    3 products of head_dim for each query head and token; where it has turned away, a choice
/// @source  zoomr
struct on_drift {
  using role = role::refresh;
  static constexpr const char* name = "on_drift";
  static constexpr bool second_pass = false;

  float cosine = 0.8f;

  ZOOMR_HD constexpr refresh_action due(const token_event&) const { return refresh_action::choose_if_drifted; }
  static constexpr bool each_token() { return false; }
  ZOOMR_HD constexpr float drift() const { return cosine; }
  constexpr const char* problem() const {
    return !(cosine >= -1.0f && cosine <= 1.0f) ? "on_drift: cosine must lie in [-1, 1]" : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) { visit("cosine", self.cosine); }
  friend constexpr bool operator==(const on_drift&, const on_drift&) = default;
};

static_assert(refresh_rule<on_drift>);

}  // namespace zoomr::inline v0

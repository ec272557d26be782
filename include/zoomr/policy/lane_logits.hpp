// SPDX-License-Identifier: Apache-2.0
// L3. What a model does to the logits of one KV lane beside scaling them:
//   logit = soft cap of (scale * q . k) + slope[head] * (position of the key - position of the query)
#pragma once

#include <zoomr/math/logits.hpp>
#include <zoomr/policy/slot_map.hpp>

namespace zoomr::inline v0 {

/// The soft cap and the bias by distance of the query heads that share a KV lane. Positions, not slots, are apart:
/// where eviction has compacted the KV lane, `slots` has which token is where.
struct lane_logits {
  float soft_cap = 0.0f;     // 0: none
  view<const float> slopes;  // [heads]  of the bias, at least 0; empty: none
  slot_map slots;            // read only for the bias

  /// Logits stay as they are.
  ZOOMR_HD constexpr bool plain() const { return soft_cap == 0.0f && slopes.size() == 0; }

  /// @param logit     scaled, natural
  /// @param head      of the slopes
  /// @param slot      of the key
  /// @param position  of the query
  /// @cost  under a soft cap an exponential and two divisions; under a bias what slot_map::position_of costs
  ZOOMR_HD float operator()(float logit, index_t head, index_t slot, index_t position) const {
    if (soft_cap != 0.0f) logit = soft_capped(logit, soft_cap);
    if (slopes.size() == 0) return logit;
    return fused(slopes[head], static_cast<float>(slots.position_of(slot) - position), logit);
  }
};

}  // namespace zoomr::inline v0

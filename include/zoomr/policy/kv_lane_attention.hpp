// SPDX-License-Identifier: Apache-2.0
// L3. What an evictor reads of one KV lane when tokens must be evicted, and of a query if it updates importance itself.
//
// Everything is by slot, and of one KV lane of one sequence. Who fills it: cache/host/eviction/observation.hpp and, on
// the device, cache/device/eviction/observation.cuh and eviction_kernels.cuh; views are valid for the one call.
#pragma once

#include <zoomr/policy/lane_logits.hpp>

namespace zoomr::inline v0 {

/// The tokens that a KV lane holds, in ascending order, and what the observed queries made of them. The first `scored`
/// compete for the room that there is; the others are kept in any case.
struct kv_lane_attention {
  view<const float, 2> received;  // [group, tokens]  attention probability, summed over the observed queries, or
                                  // what an evictor that updates importance itself has made of them
  view<float, 2> keys;            // [tokens, head_dim]  rotated, a copy to work in; empty unless the evictor reads keys
  index_t scored = 0;
  index_t queries = 0;  // that were observed

  ZOOMR_HD index_t tokens() const { return received.extent(1); }

  /// What token `t` has received: for each query head the largest within `width` scored tokens around it, then over the
  /// group their sum (as good as the mean) or the largest.
  /// @param t             slot of the token
  /// @param width         odd; 1: the token alone. At either end of the scored tokens the window is shorter
  /// @param sum_of_group  their sum, or else the largest
  /// @return              in the unit of `received`
  /// @pre  t < scored
  /// @cost  width * group reads
  ZOOMR_HD float pooled(index_t t, index_t width, bool sum_of_group) const {
    const index_t half = width / 2;
    const index_t first = t < half ? 0 : t - half;
    const index_t last = scored - 1 - t < half ? scored - 1 : t + half;
    float group_pool = 0.0f;
    for (index_t head = 0; head < received.extent(0); ++head) {
      float most = received(head, t);
      for (index_t u = first; u <= last; ++u) {
        const float other = received(head, u);
        most = most < other ? other : most;
      }
      group_pool = sum_of_group || head == 0 ? group_pool + most : group_pool < most ? most : group_pool;
    }
    return group_pool;
  }
};

/// The queries of a KV head at one token, and the tokens of the KV lane that they can see, their own the last.
struct observed_query {
  view<const float, 2> keys;   // [tokens, head_dim]  rotated
  index_t position = 0;        // of the queries
  view<float> work;            // [tokens]
  view<const float, 2> group;  // [query heads of the KV head, head_dim]  rotated
  index_t head = 0;            // of the group, whose query is observed
  index_t earlier = 0;         // tokens before the first of the queries that are observed together
  float scale = 0.0f;          // of q . k; 0: 1 / sqrt(head_dim)
  lane_logits logits = {};     // what the model does to scaled products; heads are those of the group

  /// A product with a key, scaled.
  ZOOMR_HD float scaled(float product) const {
    if (scale > 0.0f) return fused(scale, product, -0.0f);
    return quotient(product, square_root(static_cast<float>(keys.extent(1))));
  }
};

}  // namespace zoomr::inline v0

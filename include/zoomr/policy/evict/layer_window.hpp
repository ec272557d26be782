// SPDX-License-Identifier: Apache-2.0
// L4. Of the prompt, each layer keeps the tokens that its last queries attend to most, in whichever KV heads they are.
// The rest is lost for good.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Keeps, in each layer, `tokens` tokens of the prompt for each KV head on the average: in each KV head the sinks, the
/// last `queries` ones, and the share `least` of the others that it might have; then those of the highest importance,
/// whichever KV head they are of. Importance is that of `observation_window`; equals go to the lower KV head.
/// @cost    as observation_window, when the prompt's last chunk is committed
/// @source  Ada-SnapKV, arXiv:2407.11550. Differs: a KV head has its least share in any case, and what is left goes by
///          importance alone, as kvpress has it; the released code counts what a KV head would have without, and takes
///          the mean of both. Sinks are kept; one set for each KV head.
struct layer_window {
  using role = role::evictor;
  static constexpr const char* name = "layer_window";
  static constexpr bool observes = true;
  static constexpr bool accumulates = false;
  static constexpr bool reads_keys = false;
  static constexpr bool while_decoding = false;
  static constexpr scope per = scope::layer;

  index_t tokens = unlimited;  // of a KV lane on the average, the observed ones included; unlimited: nothing is lost
  index_t queries = 32;        // N, the observation window
  index_t pooling = 7;         // width of the maximum, odd; 1: none
  bool mean_of_group = false;  // over the query heads of a KV head: mean, or maximum
  float least = 0.2f;          // alpha: the share of the average that each KV head keeps in any case

  ZOOMR_HD constexpr index_t kept(index_t total) const { return tokens < total ? tokens : total; }
  ZOOMR_HD constexpr index_t observed(index_t total) const { return queries < total ? queries : total; }
  ZOOMR_HD constexpr index_t safe(index_t total) const { return observed(total); }
  /// Of so many tokens, how many each KV head keeps at least.
  ZOOMR_HD constexpr index_t fewest(index_t total) const {
    const index_t chosen = kept(total) - safe(total);
    return safe(total) + static_cast<index_t>(static_cast<float>(chosen) * least);
  }
  /// Importance: attention probability, summed over the observed queries; windows end at the last scored token.
  void rate(const kv_lane_attention& seen, view<float> importance) const {
    for (index_t t = 0; t < seen.scored; ++t) importance[t] = seen.pooled(t, pooling, mean_of_group);
  }
  constexpr const char* problem() const {
    return tokens < queries ? "layer_window: tokens must be at least queries, which are always kept"
           : queries < 1 || pooling < 1 || pooling % 2 == 0 ? "layer_window: queries must be at least 1 and pooling odd"
           : !(least >= 0.0f && least <= 1.0f)              ? "layer_window: least must lie in [0, 1]"
                                                            : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("tokens", self.tokens);
    visit("queries", self.queries);
    visit("pooling", self.pooling);
    visit("mean_of_group", self.mean_of_group);
    visit("least", self.least);
  }
  friend constexpr bool operator==(const layer_window&, const layer_window&) = default;
};

static_assert(evictor<layer_window> && kept_per<layer_window>() == scope::layer);

}  // namespace zoomr::inline v0

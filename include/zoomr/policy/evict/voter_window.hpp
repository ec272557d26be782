// SPDX-License-Identifier: Apache-2.0
// L4. Of the prompt, all KV heads keep the same tokens: those that a few heads find. The rest is lost for good.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Keeps, in all layers and KV heads alike, `tokens` tokens of the prompt: the sinks, the last `queries` ones, and
/// those that the heads with a weight in config.voters find by their last `queries` queries.
///
/// A token's importance is the sum over these heads of their weight times the largest share of attention that one of
/// the queries gives it, over all tokens that the query sees; then the maximum over a centred window of `pooling`
/// tokens. A share that is not a number counts as none.
/// @cost    once, when the prompt's last chunk is committed: reads the keys of each such head for each of the queries
/// @source  zoomr; semantic retrieval heads that evict for all others: CompressKV, arXiv:2508.02401. Differs: heads of
///          all layers find one set, each with a learnt weight, where a layer's own ones count alike there; the
///          greatest share counts, and the maximum of neighbours, where shares are added and neighbours averaged.
struct voter_window {
  using role = role::evictor;
  static constexpr const char* name = "voter_window";
  static constexpr bool observes = true;
  static constexpr bool accumulates = false;
  static constexpr bool reads_keys = false;
  static constexpr bool while_decoding = false;
  static constexpr scope per = scope::sequence;

  index_t tokens = unlimited;  // of each KV lane, those of the queries included; unlimited: nothing is lost
  index_t queries = 32;        // N, the observation window
  index_t pooling = 7;         // width of the maximum, odd; 1: none

  ZOOMR_HD constexpr index_t kept(index_t total) const { return tokens < total ? tokens : total; }
  ZOOMR_HD constexpr index_t observed(index_t total) const { return queries < total ? queries : total; }
  ZOOMR_HD constexpr index_t safe(index_t total) const { return observed(total); }
  /// Importance: weights times shares; windows end at the last scored token.
  void rate(const kv_lane_attention& seen, view<float> importance) const {
    for (index_t t = 0; t < seen.scored; ++t) importance[t] = seen.pooled(t, pooling, true);
  }
  constexpr const char* problem() const {
    return tokens < queries ? "voter_window: tokens must be at least queries, which are always kept"
           : queries < 1 || pooling < 1 || pooling % 2 == 0 ? "voter_window: queries must be at least 1 and pooling odd"
                                                            : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("tokens", self.tokens);
    visit("queries", self.queries);
    visit("pooling", self.pooling);
  }
  friend constexpr bool operator==(const voter_window&, const voter_window&) = default;
};

static_assert(evictor<voter_window> && kept_per<voter_window>() == scope::sequence);

}  // namespace zoomr::inline v0

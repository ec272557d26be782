// SPDX-License-Identifier: Apache-2.0
// L4. Of the prompt, each KV head keeps the tokens that its last queries attend most. The rest is lost for good.
#pragma once

#include <zoomr/math/softmax.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Keeps, for each layer and KV head, `tokens` tokens of the prompt: the sinks, the last `queries` ones, and
/// those that the last `queries` queries attend to most.
///
/// A token's importance is the sum of its attention probabilities over those queries, for each query head;
/// then the maximum over a centred window of `pooling` tokens; then over the group its mean or maximum.
/// @cost    once: reads the KV lane's keys for each of the last `queries` queries and query heads
/// @source  SnapKV, arXiv:2404.14469, and SentenceKV, arXiv:2504.00970. Differs: sinks are kept (undescribed
///          there); one set for each KV head, where the released code expands keys to one for each query head.
struct observation_window {
  using role = role::evictor;
  static constexpr const char* name = "observation_window";
  static constexpr bool observes = true;
  static constexpr bool accumulates = false;
  static constexpr bool reads_keys = false;
  static constexpr bool while_decoding = false;

  index_t tokens = unlimited;  // r tau; unlimited: nothing is lost
  index_t queries = 32;        // N, the observation window
  index_t pooling = 7;         // width of the maximum, odd; 1: none
  bool mean_of_group = false;  // over the query heads of a KV head: mean, or maximum

  ZOOMR_HD constexpr index_t kept(index_t prompt_tokens) const {
    return tokens < prompt_tokens ? tokens : prompt_tokens;
  }
  ZOOMR_HD constexpr index_t observed(index_t total) const { return queries < total ? queries : total; }
  ZOOMR_HD constexpr index_t safe(index_t total) const { return observed(total); }
  /// Importance: attention probability, summed over the observed queries; windows end at the last scored token.
  void rate(const kv_lane_attention& seen, view<float> importance) const {
    single_worker alone;
    rate_by(alone, seen, importance);
  }
  /// The same by a thread of the host or by a block, which shares out the tokens.
  ZOOMR_CALLS_EITHER
  template <class Workers>
  ZOOMR_HD void rate_by(Workers& workers, const kv_lane_attention& seen, view<float> importance) const {
    for (index_t t = workers.thread(); t < seen.scored; t += workers.size())
      importance[t] = seen.pooled(t, pooling, mean_of_group);
  }
  constexpr const char* problem() const {
    return tokens < queries ? "observation_window: tokens must be at least queries, which are always kept"
           : queries < 1 || pooling < 1 || pooling % 2 == 0
               ? "observation_window: queries must be at least 1 and pooling odd"
               : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("tokens", self.tokens);
    visit("queries", self.queries);
    visit("pooling", self.pooling);
    visit("mean_of_group", self.mean_of_group);
  }
  friend constexpr bool operator==(const observation_window&, const observation_window&) = default;
};

static_assert(evictor<observation_window> && observer<observation_window>);

}  // namespace zoomr::inline v0

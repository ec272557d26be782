// SPDX-License-Identifier: Apache-2.0
// L4. Heavy hitters: each KV head keeps its last tokens, and those that have got most attention ever since.
#pragma once

#include <zoomr/math/softmax.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Keeps, for each layer and KV head, `tokens` tokens: the sinks, the last `recent` ones, and those that have received
/// most attention, summed over all queries so far and over the query heads of the KV head. Done at the end of the
/// prompt and after every `every` tokens from there, so that a KV lane holds up to tokens + every.
///
/// Sums are in float, query by query in ascending order, each over what the KV lane holds at that time. A NaN logit
/// makes all that its query pays NaN, and NaN ranks last.
/// @cost    reads the KV lane's keys once for each query and head: in the prompt as its chunks come, then every `every`
///          tokens; a float for each query head and token, twice
/// @source  H2O, arXiv:2306.14048. Differs: evicted every `every` tokens, published one at each; one set for each KV
///          head, where each query head has its own there.
struct accumulated_attention {
  using role = role::evictor;
  static constexpr const char* name = "accumulated_attention";
  static constexpr bool observes = true;
  static constexpr bool accumulates = true;
  static constexpr bool reads_keys = false;
  static constexpr bool while_decoding = true;

  index_t tokens = unlimited;  // of each KV lane, the recent ones included; unlimited: nothing is lost
  index_t recent = 32;         // last tokens that are kept in any case
  index_t every = 16;          // tokens from one time to the next

  // All in tokens of a KV lane: how many of `total` stay, how many of the last queries count, how many of the last are
  // safe.
  ZOOMR_HD constexpr index_t kept(index_t total) const { return tokens < total ? tokens : total; }
  ZOOMR_HD constexpr index_t observed(index_t total) const { return total; }
  ZOOMR_HD constexpr index_t safe(index_t total) const { return recent < total ? recent : total; }
  /// Importance: attention probability, summed over queries and the heads of the group.
  void rate(const kv_lane_attention& seen, view<float> importance) const {
    single_worker alone;
    rate_by(alone, seen, importance);
  }
  /// The same by a thread of the host or by a block, which shares out the tokens.
  ZOOMR_CALLS_EITHER
  template <class Workers>
  ZOOMR_HD void rate_by(Workers& workers, const kv_lane_attention& seen, view<float> importance) const {
    for (index_t t = workers.thread(); t < seen.scored; t += workers.size()) importance[t] = seen.pooled(t, 1, true);
  }
  constexpr const char* problem() const {
    return recent < 1 || every < 1 ? "accumulated_attention: recent and every must be at least 1"
           : tokens < recent       ? "accumulated_attention: tokens must be at least recent, which are always kept"
                                   : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("tokens", self.tokens);
    visit("recent", self.recent);
    visit("every", self.every);
  }
  friend constexpr bool operator==(const accumulated_attention&, const accumulated_attention&) = default;
};

static_assert(evictor<accumulated_attention> && decoding_observer<accumulated_attention>);

}  // namespace zoomr::inline v0

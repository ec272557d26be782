// SPDX-License-Identifier: Apache-2.0
// L4. The heads that share a selection pool their scores: the votes of a segment are one float, as an integer that
// orders alike. They rank segments, but do not add up.
#pragma once

#include <zoomr/math/functions.hpp>
#include <zoomr/math/softmax.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// The mean or the maximum, over the query heads that share `per`, of their scores. With `scope::head` each
/// query head decides alone.
///
/// For the mean, scores are added in ascending order of heads; NaN stays NaN, and ranks last.
/// @source  SentenceKV and Quest decide per head; the pooling over a GQA group is undescribed there
struct pooled_score {
  using role = role::aggregator;
  static constexpr const char* name = "pooled_score";
  static constexpr votes_t least = not_eligible + 1;  // any score will do
  static constexpr bool counts = false;
  static constexpr bool pools = true;  // by `over_group`, and nothing else: the host's cache may shortlist

  scope per = scope::kv_head;
  pool over_group = pool::mean;

  void add(view<const float, 2> scores, view<const index_t> tokens, const score_logits& logits, view<votes_t> votes,
           view<index_t>) const {
    single_worker alone;
    add_by(alone, scores, tokens, logits, votes);
  }
  /// The same by a thread of the host or by a block, which shares out the segments.
  ZOOMR_CALLS_EITHER
  template <class Workers>
  ZOOMR_HD void add_by(Workers& workers, view<const float, 2> scores, view<const index_t>, const score_logits&,
                       view<votes_t> votes) const {
    for (index_t id = workers.thread(); id < votes.size(); id += workers.size()) {
      if (votes[id] != not_eligible) votes[id] = pooled(scores, id);
    }
  }

  /// The votes of one segment, `order_key` of the mean or the largest score.
  /// @param scores  [heads, segments]
  ZOOMR_HD votes_t pooled(view<const float, 2> scores, index_t id) const {
    float pool_of_heads = scores(0, id);
    for (index_t head = 1; head < scores.extent(0); ++head) {
      const float score = scores(head, id);
      if (over_group == pool::mean) pool_of_heads += score;
      if (over_group == pool::max && (score > pool_of_heads || is_nan(score))) pool_of_heads = score;
    }
    return order_key(over_group == pool::mean ? quotient(pool_of_heads, static_cast<float>(scores.extent(0)))
                                              : pool_of_heads);
  }

  constexpr const char* problem() const {
    return per == scope::sequence ? "pooled_score: scores of different layers cannot be pooled; use votes or mass"
                                  : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("per", self.per);
    visit("over_group", self.over_group);
  }
  friend constexpr bool operator==(const pooled_score&, const pooled_score&) = default;
};

static_assert(aggregator<pooled_score>);

}  // namespace zoomr::inline v0

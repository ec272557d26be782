// SPDX-License-Identifier: Apache-2.0
// L4. The heads that share a selection pool their attention, not their scores.
#pragma once

#include <zoomr/math/softmax.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// The mean or the maximum, over the query heads that share `per`, of each head's softmax over the segments: unlike
/// scores, masses of different heads can be compared. A segment counts once, however long it is.
///
/// The softmax is that of q . summary / sqrt(head_dim), or of what the model's scale and soft cap make of it. Masses
/// are counted in units of 2^-40, so that heads may come in any order; NaN scores count as nothing.
/// @cost    three passes over the scores of each head, with an exponential for each score in the last two
/// @source  ShadowKV, arXiv:2410.21465: the maximum over the group of a KV head, as published
struct pooled_mass {
  using role = role::aggregator;
  static constexpr const char* name = "pooled_mass";
  static constexpr votes_t least = 0;  // any mass will do
  static constexpr bool counts = false;
  static constexpr float unit = 1099511627776.0f;  // 2^40

  scope per = scope::kv_head;
  pool over_group = pool::max;

  void add(view<const float, 2> scores, view<const index_t> tokens, const score_logits& logits, view<votes_t> votes,
           view<index_t>) const {
    single_worker alone;
    add_by(alone, scores, tokens, logits, votes);
  }
  /// The same by a thread of the host or by a block, which shares out heads, and then segments.
  ZOOMR_CALLS_EITHER
  template <class Workers>
  ZOOMR_HD void add_by(Workers& workers, view<const float, 2> scores, view<const index_t>, const score_logits& logits,
                       view<votes_t> votes) const {
    each_softmax(
        workers, scores.extent(0), votes.size(),
        [&](index_t head, index_t id) -> softmax_logit {
          if (votes[id] == not_eligible) return {};
          return logit(scores(head, id), logits);
        },
        [&](index_t, index_t id, const auto& mass) {
          if (votes[id] != not_eligible) votes[id] = pooled(votes[id], mass.share(id));
        });
  }

  // One segment of one head: the logit is natural. The mean is left a sum, in units of 2^-40: a division by the number
  // of heads would change no rank.
  ZOOMR_HD static float logit(float score, const score_logits& logits) { return logits(score, 0.0f); }
  ZOOMR_HD votes_t pooled(votes_t so_far, float share) const {
    const auto of_head = static_cast<votes_t>(share * unit + 0.5f);
    if (over_group == pool::mean) return so_far + of_head;
    return of_head > so_far ? of_head : so_far;
  }

  constexpr const char* problem() const {
    return per == scope::sequence ? "pooled_mass: masses of different layers are not pooled; use head_mass" : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("per", self.per);
    visit("over_group", self.over_group);
  }
  friend constexpr bool operator==(const pooled_mass&, const pooled_mass&) = default;
};

static_assert(aggregator<pooled_mass>);

}  // namespace zoomr::inline v0

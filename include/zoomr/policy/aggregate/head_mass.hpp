// SPDX-License-Identifier: Apache-2.0
// L4. Votes are attention mass, estimated from summaries alone: a head whose mass is spread out decides little.
//
//   mass(head, id) = exp(x_id) / sum over eligible ids of exp(x),   x = logit of the score + ln(tokens left of id)
#pragma once

#include <zoomr/math/softmax.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Each query head spreads a mass of 1 over the segments: the softmax of logit + ln(tokens), an estimate of the
/// attention that each would get. The logit is q . summary / sqrt(head_dim), or what the model's scale and soft cap
/// make of it. Masses add up in units of 2^-24.
///
/// A head whose mass is on one thought decides more than ten whose mass is spread out. NaN scores count as nothing.
/// Masses are integers before they are added: heads and layers may come in any order.
/// @cost    three passes over the scores of each head, with an exponential for each score in the last two
/// @source  zoomr
struct head_mass {
  using role = role::aggregator;
  static constexpr const char* name = "head_mass";
  static constexpr votes_t least = 0;  // even without mass: if there is room, nothing is left out
  static constexpr bool counts = true;
  static constexpr float unit = 16777216.0f;  // 2^24

  scope per = scope::sequence;

  void add(view<const float, 2> scores, view<const index_t> tokens, const score_logits& logits, view<votes_t> votes,
           view<index_t>) const {
    single_worker alone;
    add_by(alone, scores, tokens, logits, votes);
  }
  /// A head's mass is multiplied by its weight.
  void add_weighted(view<const float, 2> scores, view<const votes_t> weights, view<const index_t> tokens,
                    const score_logits& logits, view<votes_t> votes, view<index_t>) const {
    single_worker alone;
    add_by(alone, scores, tokens, logits, votes, weights);
  }

  /// The same by a thread of the host or by a block, which shares out heads, and then segments.
  /// @param weights  [heads]  how often a mass counts, 0: not at all; without any each counts once
  template <class Workers>
  ZOOMR_HD void add_by(Workers& workers, view<const float, 2> scores, view<const index_t> tokens,
                       const score_logits& logits, view<votes_t> votes, view<const votes_t> weights = {}) const {
    const auto weight = [&](index_t head) { return weights.size() == 0 ? votes_t{1} : weights[head]; };
    each_softmax(
        workers, scores.extent(0), votes.size(),
        [&](index_t head, index_t id) -> softmax_logit {
          if (weight(head) == 0 || votes[id] == not_eligible) return {};
          return logit(scores(head, id), logits, tokens[id]);
        },
        [&](index_t head, index_t id, const auto& mass) {
          if (votes[id] != not_eligible) votes[id] += counted(mass.share(id)) * weight(head);
        });
  }

  // One segment of one head: the logit is natural, and `tokens` at least 1, since a segment with none left is not
  // eligible; a share in [0, 1] becomes votes, rounded to the nearest.
  ZOOMR_HD static float logit(float score, const score_logits& logits, index_t tokens) {
    return logits(score, logarithm(static_cast<float>(tokens)));
  }
  ZOOMR_HD static votes_t counted(float share) { return static_cast<votes_t>(share * unit + 0.5f); }

  static constexpr void each_field(auto& self, auto visit) { visit("per", self.per); }
  friend constexpr bool operator==(const head_mass&, const head_mass&) = default;
};

static_assert(aggregator<head_mass> && weight_taker<head_mass>);

}  // namespace zoomr::inline v0

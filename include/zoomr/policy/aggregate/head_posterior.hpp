// SPDX-License-Identifier: Apache-2.0
// L4. How likely each segment is the one that is needed, by a few heads that were found to attend to it.
#pragma once

#include <zoomr/math/softmax.hpp>
#include <zoomr/policy/concepts.hpp>

#include <algorithm>  // std::max

namespace zoomr::inline v0 {

/// votes = softmax over the eligible segments of  sum over heads of weight * ln of the head's largest share
///
/// One more class may be in it, none of these segments, with a learnt logit that depends on the number of eligible
/// segments alone (config.voters_none, voters_none_slope): segments have what that leaves. What the heads pay to zones
/// and pinned segments is no part of it, since no choice scores their keys. With `gate`, what a choice serves attends
/// everything where the posterior is unsure (policy/posterior_gate.hpp): its entropy exceeds config.voters_unsure, or
/// none has more votes than any segment.
///
/// A named question that lies farther back, before a long text, scores too if the model's rotary embedding is known
/// (config.rotary): the queries of its last tokens, 64 at most, are turned to where the last prompt ends, as if it were
/// asked there. Of the `queries` last ones then those count that are of the newest message.
///
/// The weights of config.voters are those of a multinomial logistic regression, so that the softmax is a posterior: how
/// likely it is that this segment is the one that is needed. It is counted in units of 2^-40 and adds up to 1, so that
/// `top_p` takes the smallest set that holds a given share of what the segments have. Of the last `queries` queries,
/// and those of a named question, the one with the largest share of a segment counts: as a rule one token of a question
/// attends to it. A share below e^-87 counts as that; a segment without a share has no votes.
/// @cost    an exponential for each of the last queries, voting head and segment, in the cache; three for each segment
///          here
/// @source  zoomr; single heads as retrievers: arXiv:2404.15574, weighted by learning: QRHead, arXiv:2506.09944
struct head_posterior {
  using role = role::aggregator;
  static constexpr const char* name = "head_posterior";
  static constexpr scope per = scope::sequence;
  static constexpr votes_t least = 0;
  static constexpr bool counts = true;

  index_t queries = 16;
  index_t question = 0;  // and those of the question that spans name, whose first token is among so many last ones,
                         // or, turned, whose is not
  bool gate = true;      // an unsure choice is one of everything; by the config's defaults none is unsure

  /// What a share counts as, in ln.
  ZOOMR_HD float counted(float share) const { return is_nan(share) || share > -87.0f ? share : -87.0f; }
  void add_shares(view<float, 2> shares, view<const float> weights, view<votes_t> votes) const {
    add_shares(shares, weights, votes, none_class{});
  }
  /// @return  votes of the class none
  votes_t add_shares(view<float, 2> shares, view<const float> weights, view<votes_t> votes, none_class none) const {
    const view<float> sums = shares[0];
    for (index_t head = 0; head < shares.extent(0); ++head) {
      for (index_t id = 0; id < sums.size(); ++id) {
        sums[id] = fused(weights[head], counted(shares(head, id)), head > 0 ? sums[id] : 0.0f);
      }
    }
    const index_t segments = votes.size();
    const bool has_none = none.exists();
    float logit_of_none = none.logit;
    if (has_none && none.slope != 0.0f) {
      index_t eligible = 0;
      for (const votes_t of_segment : votes) eligible += of_segment != not_eligible ? 1 : 0;
      logit_of_none = none.among((std::max)(eligible, index_t{1}));
    }
    const softmax posterior(segments + (has_none ? 1 : 0), [&](index_t id) -> softmax_logit {
      if (id == segments) return logit_of_none;
      if (votes[id] == not_eligible) return {};
      return sums[id];
    });
    if (posterior.sum() == 0.0f) return 0;
    for (index_t id = 0; id < segments; ++id) {
      if (votes[id] != not_eligible) votes[id] = units_of(posterior.share(id));
    }
    return has_none ? units_of(posterior.share(segments)) : 0;
  }

  constexpr const char* problem() const {
    if (queries < 1) return "head_posterior: queries must be at least 1, the asking token's";
    return question < 0 ? "head_posterior: question cannot be negative" : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("queries", self.queries);
    visit("question", self.question);
    visit("gate", self.gate);
  }
  friend constexpr bool operator==(const head_posterior&, const head_posterior&) = default;
};

static_assert(aggregator<head_posterior> && gated_aggregator<head_posterior>);

}  // namespace zoomr::inline v0

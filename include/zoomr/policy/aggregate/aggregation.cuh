// SPDX-License-Identifier: Apache-2.0
// L4. What a block makes votes of: the device's form of `aggregator::add`. A rule that shares out its work (`add_by`)
// serves both; another one has an overload of `aggregate`, which all threads of a block call. Thread t alone looks
// after the segments t, t + threads, ...
#pragma once

#include <zoomr/core/device/block.cuh>
#include <zoomr/math/order.hpp>
#include <zoomr/math/softmax.cuh>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Scores of some heads, and the votes that they add to: of a row's heads at once, or where one selection serves all
/// layers, of one layer after the other (layer_kernel of a cache), on top of what is there.
///
/// Before and after a call, votes and tokens are read and written by the thread that looks after the segment: no
/// barrier is needed between begin_choice, `aggregate` and choose_row. Scores are there, and seen by the block.
struct aggregation {
  view<const float, 2> scores;  // [heads, segments]
  view<const index_t> tokens;   // [segments]  attendable details
  score_logits logits;          // of the scores
  view<votes_t> votes;          // [segments]  not_eligible: left alone
};

/// The same for one that counts voters alone (weighing_aggregator): of a layer.
struct weighted_aggregation {
  aggregation heads;            // all of the layer; scores of those without a weight mean nothing
  view<const votes_t> weights;  // [heads]  as of a weight_taker, 0 of those that do not vote
};

/// The same for an aggregator of several queries (share_aggregator): `aggregate` comes once for a sequence.
struct share_aggregation {
  view<float, 2> shares;      // [voters, segments]  ln of the largest share; may be overwritten by a segment's thread
  view<const float> weights;  // [voters]
  view<votes_t> votes;        // [segments]  not_eligible: left alone
  none_class none = {};       // of a gated_aggregator: `aggregate` returns its votes
};

/// Of a rule that shares out its work by `add_by`: any threads of a block do it.
/// @cost  as of the rule, with reductions over the block
template <class Rule>
requires requires(const Rule& rule, const aggregation& in, block_threads& block) {
  rule.add_by(block, in.scores, in.tokens, in.logits, in.votes);
}
__device__ void aggregate(const Rule& rule, const aggregation& in, block_threads& block) {
  rule.add_by(block, in.scores, in.tokens, in.logits, in.votes);
}
/// The same of voters alone.
template <class Rule>
requires requires(const Rule& rule, const aggregation& in, block_threads& block, view<const votes_t> weights) {
  rule.add_by(block, in.scores, in.tokens, in.logits, in.votes, weights);
}
__device__ void aggregate(const Rule& rule, const weighted_aggregation& in, block_threads& block) {
  const aggregation& heads = in.heads;
  rule.add_by(block, heads.scores, heads.tokens, heads.logits, heads.votes, in.weights);
}

}  // namespace zoomr::inline v0

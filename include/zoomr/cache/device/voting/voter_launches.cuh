// SPDX-License-Identifier: Apache-2.0
// L6. What a step enqueues for heads that vote, on the caller's stream: in each layer `remember` the queries of prompts
// (those of other tokens layer_kernel notes), after the last layer `choose`; in `commit`, `commit_voters`, and where a
// prompt has ended `choose` again.
#pragma once

#include <zoomr/cache/device/choosing/rank_choices.cuh>
#include <zoomr/cache/device/launching/pass.cuh>
#include <zoomr/cache/device/voting/voter_kernels.cuh>
#include <zoomr/policy/aggregate/head_posterior.cuh>

#include <algorithm>  // std::clamp, std::min
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Copies to the device which heads vote.
template <class Core>
void copy_voters(Core& core, stream_ref stream) {
  std::vector<voter_kv_lane> kv_lanes;
  std::vector<index_t> heads, layer_begin(1);
  for (const voter_table::kv_lane& kv_lane : core.voters.kv_lanes()) {
    while (static_cast<index_t>(layer_begin.size()) <= kv_lane.layer) {
      layer_begin.push_back(static_cast<index_t>(kv_lanes.size()));
    }
    kv_lanes.push_back({kv_lane.layer, kv_lane.kv_head, kv_lane.first, static_cast<index_t>(kv_lane.heads.size())});
    heads.insert(heads.end(), kv_lane.heads.begin(), kv_lane.heads.end());
  }
  layer_begin.resize(static_cast<std::size_t>(core.sizes.model.layers) + 1, static_cast<index_t>(kv_lanes.size()));
  const view<const float> weights = core.voters.weights();
  const voter_arrays& voting = core.arrays.voting;
  core.constants.copy(voting.kv_lanes, kv_lanes, stream);
  core.constants.copy(voting.layer_begin, layer_begin, stream);
  core.constants.copy(voting.heads, heads, stream);
  core.constants.copy(voting.weights, std::vector<float>(weights.begin(), weights.end()), stream);
}

/// Copies to the device what a vote of each head counts.
template <class Core>
void copy_head_weights(Core& core, stream_ref stream) {
  const shape& model = core.sizes.model;
  std::vector<votes_t> weights(static_cast<std::size_t>(model.layers) * static_cast<std::size_t>(model.heads));
  for (index_t layer = 0; layer < model.layers; ++layer) {
    core.voters.each_in(layer, [&](index_t voter, index_t head) {
      weights[static_cast<std::size_t>(layer * model.heads + head)] = core.voters.votes()[voter];
    });
  }
  core.constants.copy(core.arrays.head_weights, weights, stream);
}

/// What the gate says of a posterior, to all threads of a block, which call it.
/// @param votes    [segments]  each read by the thread that looks after the segment
/// @param of_none  votes of the class none
/// @cost  two block-wide reductions
__device__ inline bool is_unsure(block_threads& block, const posterior_gate& gate, view<const votes_t> votes,
                                 votes_t of_none) {
  votes_t largest = not_eligible, entropy = block.thread() == 0 ? entropy_units(of_none) : 0;
  for (index_t id = block.thread(); id < votes.size(); id += block.size()) {
    if (votes[id] > largest) largest = votes[id];
    entropy += entropy_units(votes[id]);
  }
  const votes_t in_all = block.sum(entropy);
  return gate.unsure(in_all, of_none, block.largest(largest));
}

/// Makes a row one of everything; of which thread what is, as of choose_row.
__device__ inline void choose_everything(block_threads& block, const row_to_choose& row) {
  for (index_t id = block.thread(); id < row.levels.size(); id += block.size()) row.levels[id] = level::details;
  if (block.thread() == 0) *row.selection = {row.levels, selection_row::of_everything, 0};
}

/// Makes the choices for all layers from the voters' shares by the last queries; a block for each token. It comes after
/// share_kernel; what it chooses is read from the next token on.
template <class Policy, class T>
__global__ void __launch_bounds__(choose_threads) choose_by_voters_kernel(Policy policy, device_arrays<Policy, T> a) {
  __shared__ block_scratch scratch;
  __shared__ best_scratch<choose_threads> walk_scratch;
  const auto t = static_cast<index_t>(blockIdx.x);
  if (t >= a.table.counts->tokens || a.table.tokens[t].chooses < 0) return;
  const device_token& token = a.table.tokens[t];
  const voter_arrays& voting = a.voting;
  block_threads block(scratch);
  const layer_row<Policy, T> row{a, policy, token, t, 0, 0};
  const view<float, 2> shares = voting.shares_at(token.sequence, token.segments);
  const view<const float> weights{voting.weights, {voting.sizes.voters}};
  const share_aggregation of_shares{shares, weights, row.votes(), voting.gate.none};
  bool unsure = false;
  if constexpr (gated_aggregator<decltype(Policy::aggregate)>) {
    if (token.segments > 0) {
      const votes_t of_none = aggregate(policy.aggregate, of_shares, block);
      const bool bounded = policy.aggregate.gate && voting.gate.bounds();
      unsure = bounded && is_unsure(block, voting.gate, row.votes(), of_none);
    }
  } else {
    if (token.segments > 0) aggregate(policy.aggregate, of_shares, block);
  }
  const row_to_choose choice = row.to_choose();
  if (unsure) {
    choose_everything(block, choice);
  } else {
    choose_row(block, walk_scratch, policy.select, choice, attended_anyway(block, policy.select, choice));
  }
  for (index_t query = block.thread(); query < token.scoring.size(); query += block.size()) {
    const index_t position = token.scoring.from_newest(query);
    voting.known_at(token.sequence, position) = {position + 1, token.segments};
  }
}

/// The launches of one pass for a policy of voters with several queries. With `fixed` none of their arguments or grids
/// depends on the step.
template <class Policy, class T, index_t HeadDim, class Ranks>
struct voter_launches : device_pass<Policy, T> {
  using pass = device_pass<Policy, T>;
  using pass::arrays, pass::core, pass::deciding, pass::grid, pass::may_choose;

  using pass::pass;

  /// As device_launches::load.
  template <class Number>
  void load() const {
    load_kernel(remember_voters_kernel<Number>);
    load_kernel(commit_voters_kernel<T>);
    load_kernel(score_by_keys_kernel<HeadDim, decltype(Policy::score), T>);
    load_kernel(share_kernel<T>);
    load_kernel(choose_by_voters_kernel<Policy, T>);
    if constexpr (may_share_choices<Policy, Ranks>()) load_kernel(spread_shares_kernel<T>);
  }

  /// Remembers a layer's queries [tokens, heads, head_dim] of prompts, until commit.
  /// @cost  1 launch for each prompt, in layers where heads vote
  template <class Number>
  void remember(index_t layer, view<const Number, 3> queries, stream_ref stream) const {
    bool any = false;
    for (const voter_table::kv_lane& kv_lane : core.voters.kv_lanes()) any = any || kv_lane.layer == layer;
    for (const device_item& item : core.step.items) {
      const index_t count = (std::min)(item.tokens, core.sizes.remembered);
      if (!any || !item.prompt || count == 0) continue;
      launch({grid(count), dim3(voter_threads)}, stream, remember_voters_kernel<Number>, core.arrays.voting, layer,
             queries, item.packed + item.tokens - count, item.remembered);
    }
  }

  /// Behind the last layer, or the end of a prompt: makes the choices that are due.
  /// @pre   begin_kernel came before
  /// @cost  3 launches; over ranks 1 and an all-reduce more where a token chooses, else none
  void choose(stream_ref stream) const {
    constexpr bool may_gather = may_share_choices<Policy, Ranks>();
    const bool gathers = may_gather && core.gathered.voters > 0;
    if (gathers && !may_choose()) return;
    device_arrays<Policy, T> a = arrays();
    if (!gathers || core.sizes.voting.voters > 0) share(a, stream);
    if constexpr (may_gather) {
      if (gathers) gather(a, stream);
    }
    launch({grid(deciding), dim3(choose_threads)}, stream, choose_by_voters_kernel<Policy, T>, core.kernel_policy, a);
  }

  /// Blocks that score at the most: some for each multiprocessor.
  static constexpr index_t most_blocks = 4096;

 private:
  // Of the voters of this rank.
  void share(const device_arrays<Policy, T>& a, stream_ref stream) const {
    const logit_rule& rule = core.limits.logits;
    const voter_sizes& sizes = core.sizes.voting;
    const key_logits logits{core.limits.logit_scale(0, 0, HeadDim), rule.soft_cap, a.slopes};
    const index_t rows = deciding * sizes.kv_lanes;
    const index_t blocks = std::clamp<index_t>(most_blocks / rows, 1, core.sizes.segments / 32 + 1);
    launch({grid(rows, blocks), dim3(scoring_threads)}, stream,
           score_by_keys_kernel<HeadDim, decltype(Policy::score), T>, core.kernel_policy.score, a, a.voting, logits);
    launch({grid(deciding, sizes.voters), dim3(voter_threads)}, stream, share_kernel<T>, a, a.voting);
  }
  // Those of all ranks' voters, in the place of these.
  void gather(device_arrays<Policy, T>& a, stream_ref stream) const {
    const gathered_shares& all = core.gathered;
    launch({grid(deciding, all.voters), dim3(voter_threads)}, stream, spread_shares_kernel<T>, a, a.voting, all);
    add_up(core, all.shares, std::int64_t{core.sizes.sequences} * all.voters * all.room / 2, stream);
    a.voting = all.in(a.voting);
  }
};

/// Makes what is remembered of a chunk part of a sequence whose tokens are committed.
/// @cost  1 launch
template <class Policy, class T>
void commit_voters(const device_core<Policy, T>& core, const device_item& item, stream_ref stream) {
  const index_t count = (std::min)(item.tokens, core.sizes.remembered);
  if (!item.prompt || !item.observed || count == 0) return;
  launch({dim3(static_cast<unsigned>(count)), dim3(voter_threads)}, stream, commit_voters_kernel<T>, core.arrays.voting,
         item.seq, item.remembered, item.first + item.tokens - count);
}

}  // namespace zoomr::inline v0::detail

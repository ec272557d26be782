// SPDX-License-Identifier: Apache-2.0
// L6. Choices that ranks make together, each with some heads of every layer: all add up what their heads say, and each
// chooses from that as one rank with all heads would. Nothing else is told.
//
// Votes are integers of the same segments on each rank: what all heads of a rank have added, of one layer or of all, is
// added up before the choice. Shares of voters are floats, which are weighed in the order of all heads: each rank
// writes its own ones among zeros, so that words which are added up are all shares. Both are one all-reduce, on the
// stream, behind which every rank makes the same choice.
#pragma once

#include <zoomr/cache/device/choosing/choices.cuh>
#include <zoomr/cache/device/voting/voter_kernels.cuh>

#include <type_traits>  // std::is_same_v
#include <vector>       // std::vector

namespace zoomr::inline v0 {

/// What a `device_cache` is compiled for: all heads of the model, or some, of which the others are on other ranks.
struct one_rank {};
struct several_ranks {};

namespace detail {

/// `Ranks` tell each other something for the choices of a policy, unless each KV head makes its own. Scores that are
/// pooled over the heads of a layer would have to be gathered, and are not (device_checks).
template <class Policy, class Ranks>
constexpr bool may_share_choices() {
  if constexpr (std::is_same_v<Ranks, several_ranks> && Policy::selects) {
    return decltype(Policy::aggregate)::counts;
  } else {
    return false;
  }
}

/// Chooses from the votes of all ranks, and finds what each token attends; a block for each token.
///
/// Which segments are eligible is in what they have left: the votes of others are sums that mean nothing. Rows of
/// tokens that choose nothing are added up as they are, and not read.
/// @param layer  the row's; 0 where one choice serves all layers
/// @param use    as of layer_kernel
template <class Policy, class T>
__global__ void __launch_bounds__(choose_threads)
    choose_together_kernel(Policy policy, device_arrays<Policy, T> a, index_t layer, range_use use) {
  __shared__ choice_scratch scratch;
  const auto t = static_cast<index_t>(blockIdx.x);
  if (t >= a.table.counts->tokens || (use == range_use::attention && a.table.tokens[t].prompt)) return;
  const device_token& token = a.table.tokens[t];
  block_threads block(scratch.block);
  const layer_row<Policy, T> row{a, policy, token, t, 0, layer};
  index_t reads = token.reads;
  if (token.chooses >= 0) {
    const row_to_choose choice = row.to_choose();
    const view<votes_t> votes = row.votes();
    for (index_t id = block.thread(); id < votes.size(); id += block.size()) {
      if (choice.tokens[id] == 0) votes[id] = not_eligible;
    }
    choose_row(block, scratch.walk, policy.select, choice, attended_anyway(block, policy.select, choice));
    __syncthreads();  // as in choose_and_resolve
    reads = token.chooses;
  }
  if (use == range_use::attention) find_ranges(row, reads, block);
}

/// Writes the voters' shares to where those of all ranks come together: a block for each token of the table and voter
/// of any rank. It comes after share_kernel.
template <class T>
__global__ void __launch_bounds__(voter_threads)
    spread_shares_kernel(common_arrays<T> a, voter_arrays voting, gathered_shares gathered) {
  const auto t = static_cast<index_t>(blockIdx.x);
  const auto voter = static_cast<index_t>(blockIdx.y);
  if (t >= a.table.counts->tokens || a.table.tokens[t].chooses < 0) return;
  const device_token& token = a.table.tokens[t];
  const index_t own = gathered.own[voter];
  const view<float> to = gathered.row(token.sequence, voter);
  const view<const float, 2> shares = voting.shares_at(token.sequence, token.segments);
  for (auto id = static_cast<index_t>(threadIdx.x); id < token.segments; id += voter_threads) {
    to[id] = own < 0 ? 0.0f : shares(own, id);
  }
}

/// Copies to the device whose voters are whose, and all weights.
/// @param limits  as they were given
template <class Core>
void copy_gathered(Core& core, const config& limits, stream_ref stream) {
  if (core.gathered.voters == 0) return;
  const index_t heads = core.sizes.model.heads;
  const index_t first = limits.ranks.first_of(limits.ranks.group.rank(), heads);
  std::vector<index_t> own;
  std::vector<float> weights;
  for (index_t layer = 0, voters = 0; layer < limits.voters.extent(0); ++layer) {
    for (index_t head = 0; head < limits.voters.extent(1); ++head) {
      if (!(limits.voters(layer, head) > 0.0f)) continue;
      own.push_back(head >= first && head < first + heads ? voters++ : -1);
      weights.push_back(limits.voters(layer, head));
    }
  }
  core.constants.copy(core.gathered.own, own, stream);
  core.constants.copy(core.gathered.weights, weights, stream);
}

/// Adds up numbers of the device over all ranks.
template <class Core>
void add_up(const Core& core, void* numbers, std::int64_t count, stream_ref stream) {
  core.limits.ranks.group.add_up(static_cast<std::int64_t*>(numbers), count, stream);
}

}  // namespace detail
}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L6. Choices on the device: what scores, aggregates and selects, and finds the ranges that are attended.
//
// A choice goes through twins of the host's functions, a block for each of its rows: votes of scores (`aggregate`), the
// best of them under limits (`choose_row`), levels to ranges (`resolve`). Where a row is one layer's or less, that is
// done in the layer, after its scoring and in the same kernel (layer_kernel.cuh). Where it serves all layers,
// begin_kernel begins its votes, each layer adds to them, and choose_for_all_kernel takes the best after the last one
// (choice_launches.cuh).
#pragma once

#include <zoomr/cache/device/memory/layout.cuh>
#include <zoomr/policy/aggregate/aggregation.cuh>
#include <zoomr/policy/aggregate/head_votes.cuh>
#include <zoomr/policy/score/scores.cuh>
#include <zoomr/policy/select/choose.cuh>
#include <zoomr/policy/summarize/by_dimension.cuh>

namespace zoomr::inline v0::detail {

/// What a policy's choices need on a device, at compile time.
template <class Policy>
constexpr bool check_choices() {
  static_assert(
      !Policy::selects || !key_scorer<decltype(Policy::score)> || hears_voters<Policy>,
      "device_cache: a scorer that reads keys needs an aggregator that hears voters, like head_posterior; with "
      "others it is for the host's cache");
  static_assert(!Policy::selects || device_summarizer<decltype(Policy::summarize)>,
                "device_cache: a summarizer must work dimension by dimension (open, fold, close), or have an overload "
                "of `make_summary` for the device (policy/summarize/by_dimension.cuh)");
  static_assert(!Policy::selects || limited_selector<decltype(Policy::select)>,
                "device_cache: a selector must say its limits (policy/take_best.hpp)");
  return true;
}
/// nullptr, or a sentence: why they cannot be made for keys of so many dimensions.
/// @param tiered  pages are over tiers
template <class Policy>
const char* choices_problem(const Policy& policy, index_t head_dim, bool tiered) {
  if constexpr (hears_voters<Policy>) {
    if (tiered) {
      return "device_cache: heads that vote read the keys of all segments at each choice, so the placement must not be "
             "tiered";
    }
    if (decltype(Policy::query)::sums) return "device_cache: where heads vote, no query source that sums";
  }
  if constexpr (Policy::selects) {
    if (!fits_scratch<decltype(Policy::summarize)>(policy.segment.longest, head_dim)) {
      return "device_cache: the policy's summarizer takes shorter segments, or keys of fewer dimensions";
    }
  }
  return nullptr;
}

/// True if what tokens of some pass read in a layer may be certain before it: for a graph, which covers passes of any
/// tokens.
template <class Policy>
bool may_be_known_before(const Policy& policy, const device_sizes& sizes, index_t layer) {
  return !Policy::selects || sizes.persists || layer < policy.zone.dense_layers;
}
/// True if what a token reads in a layer does not depend on its queries there.
template <class Policy>
ZOOMR_HD bool known_before(const Policy& policy, const device_token& token, index_t layer) {
  if constexpr (!Policy::selects) return true;
  return token.prompt || token.dense || token.chooses < 0 || policy.aggregate.per == scope::sequence ||
         layer < policy.zone.dense_layers;
}

/// What a layer finds for its tokens: the ranges that the following attention reads; none, since an earlier layer of
/// the pass has found the same; or the choice alone, as at a prompt's end.
enum class range_use { attention, known, choice };

/// The layers that find ranges. Where the tokens of a pass read the same in all of them, one finds them for those that
/// follow: the first, and the first that is not dense.
template <class Policy>
bool finds_ranges(const Policy& policy, index_t layer) {
  if constexpr (decltype(Policy::evict)::observes) return true;  // each KV lane has its own table of positions
  if (Policy::selects && policy.aggregate.per != scope::sequence) return true;
  return layer == 0 || (Policy::selects && layer == policy.zone.dense_layers);
}

/// The rows of a layer's scoring: row i is KV head i % kv_heads of token i / kv_heads of the table. The row of a token
/// that makes no choice has no segments, so that one block is enough for it.
template <class T, class Number, class Summary>
struct rows_to_score {
  common_arrays<T> a;
  const Summary* summaries = nullptr;  // device_arrays::summaries
  index_t layer = 0;
  view<const Number, 3> queries;
  index_t count = 0;              // that the grid covers, present or not
  const float* scales = nullptr;  // device_arrays::scales

  using number = Number;
  using summary = Summary;
  using row_type = row_to_score<Number, Summary>;

  __device__ row_type at(index_t i) const {
    const shape& model = a.sizes.model;
    const index_t t = i / model.kv_heads;
    const index_t kv_head = i % model.kv_heads;
    row_type row;
    if (t >= a.table.counts->tokens || a.table.tokens[t].chooses < 0) return row;
    const device_token& token = a.table.tokens[t];
    const index_t first = kv_head * model.group();
    row.queries = queries[token.row].slice(first, first + model.group());
    row.count = token.sums;
    if (a.sizes.records > 0 && !token.prompt) {
      row.sums = a.sums_of(token.sequence, token.position, layer);
      row.sums = row.sums.slice(first, first + model.group());
    }
    row.summaries = summaries + a.summaries_at(token.sequence, layer * model.kv_heads + kv_head);
    if constexpr (scales_summaries<Summary>) {
      row.scales = scales + a.scales_at(token.sequence, layer * model.kv_heads + kv_head);
    }
    row.segments = token.segments;
    float* scores = a.scores + (std::int64_t{t} * model.heads + first) * a.sizes.segments;
    row.scores = {scores, {model.group(), token.segments}, {a.sizes.segments, 1}};
    return row;
  }
};

/// One row of a layer: a token, and those of its heads that share a selection. Each thread makes its own; what it
/// refers to is in global memory.
template <class Policy, class T>
struct layer_row {
  const device_arrays<Policy, T>& a;
  const Policy& policy;
  const device_token& token;
  index_t t;    // of the table's tokens
  index_t row;  // of the layer's rows
  index_t layer;

  __device__ bool dense() const { return token.dense || layer < policy.zone.dense_layers; }
  /// True if the token's place gets a choice in this layer.
  __device__ bool chooses() const { return token.chooses >= 0 && layer >= policy.zone.dense_layers; }
  __device__ view<votes_t> votes() const {
    return {a.votes + a.token_row(t, row) * a.sizes.segments, {token.segments}};
  }
  __device__ view<index_t> left() const { return {a.left + a.token_row(t, row) * a.sizes.segments, {token.segments}}; }
  __device__ view<const segment> segments() const { return a.segments_of(token.sequence, token.segments); }

  /// Of the KV head whose tokens the row reads. A row of several KV heads takes the first, since all of them hold the
  /// same tokens then (policy::problem).
  __device__ slot_map slots() const {
    const index_t kv_heads = a.sizes.model.kv_heads;
    return a.slots_of(token.sequence, layer * kv_heads + row * kv_heads / a.sizes.layer_rows, token.held);
  }

  /// Scores [heads of the row, segments], and the votes that they add to; with the heads' weights, if only voters
  /// count.
  __device__ auto to_aggregate() const {
    const index_t heads = a.sizes.model.heads / a.sizes.layer_rows;
    const float* scores = a.scores + (std::int64_t{t} * a.sizes.model.heads + row * heads) * a.sizes.segments;
    const aggregation of_heads{
        {scores, {heads, token.segments}, {a.sizes.segments, 1}}, left(), a.sizes.logits, votes()};
    if constexpr (weighs_heads<Policy>) {
      return weighted_aggregation{of_heads, a.weights_in(layer, heads)};
    } else {
      return of_heads;
    }
  }

  __device__ row_to_choose to_choose() const {
    using aggregator_type = decltype(policy.aggregate);
    const std::int64_t at = a.place_row(token.chooses, layer, row);
    row_to_choose result;
    result.segments = segments();
    result.zone = token.zone;
    result.slots = slots();
    result.votes = votes();
    result.least = aggregator_type::least;
    result.least_attended = least_attended<aggregator_type>(policy.zone.summaries);
    result.tokens = left();
    result.levels = a.levels_of(at, token.segments);
    result.selection = a.rows + at;
    return result;
  }

  /// @param place  of the selection to read; -1: nothing has been chosen, and all summaries are attended
  __device__ row_to_resolve to_resolve(index_t place) const {
    const std::int64_t at = a.token_row(t, row);
    row_to_resolve result;
    result.zone = token.zone;
    result.own_summary = !Policy::selects || policy.zone.own_summary;
    result.slots = slots();
    result.ranges = {a.ranges + at * a.sizes.most_ranges(), {a.sizes.most_ranges()}};
    result.before = {a.before + at * a.sizes.most_ranges(), {a.sizes.most_ranges()}};
    result.size = a.read + at;
    if (dense()) {
      result.zone = token.zone.whole();
      return result;
    }
    result.segments = segments();
    if constexpr (Policy::selects) {
      if (place >= 0) result.row = a.rows[a.place_row(place, layer, row)];
    }
    if constexpr (hears_voters<Policy>) {
      if (result.row.everything()) {
        result.zone = token.zone.whole();
        result.segments = {};
      }
    }
    return result;
  }
};

/// Begins, for tokens that choose for all layers, the votes that each layer adds to; a block for each token. It comes
/// before layer 0.
template <class Policy, class T>
__global__ void __launch_bounds__(choose_threads) begin_kernel(Policy policy, device_arrays<Policy, T> a) {
  __shared__ block_scratch scratch;
  const auto t = static_cast<index_t>(blockIdx.x);
  if (t >= a.table.counts->tokens || a.table.tokens[t].chooses < 0) return;
  block_threads block(scratch);
  const layer_row<Policy, T> row{a, policy, a.table.tokens[t], t, 0, policy.zone.dense_layers};
  begin_choice(block, row.segments(), row.token.zone, {}, row.left(), row.votes());
}

/// Makes the choices for all layers, from their votes; a block for each token. It comes after the votes of the last
/// layer; what it makes is read from the second pass, or the next token, on.
template <class Policy, class T>
__global__ void __launch_bounds__(choose_threads) choose_for_all_kernel(Policy policy, device_arrays<Policy, T> a) {
  __shared__ block_scratch scratch;
  __shared__ best_scratch<choose_threads> walk_scratch;
  const auto t = static_cast<index_t>(blockIdx.x);
  if (t >= a.table.counts->tokens || a.table.tokens[t].chooses < 0) return;
  block_threads block(scratch);
  const layer_row<Policy, T> row{a, policy, a.table.tokens[t], t, 0, 0};
  const row_to_choose choice = row.to_choose();
  choose_row(block, walk_scratch, policy.select, choice, attended_anyway(block, policy.select, choice));
}

/// Finds the ranges of a row's token, under the choice at a place. All threads of a block call it.
template <class Policy, class T>
__device__ void find_ranges(const layer_row<Policy, T>& row, index_t place, block_threads& block) {
  const row_to_resolve to = row.to_resolve(place);
  const attended_size size =
      resolve(block, to.segments, to.row, to.zone, to.own_summary, to.slots, to.ranges, to.before);
  if (block.thread() == 0) *to.size = size;
}

/// What a block needs to make choices.
struct choice_scratch {
  block_scratch block;
  best_scratch<choose_threads> walk;
};

/// Of one row of a layer: makes its choice if that is due, or where one choice serves all layers adds to its votes;
/// then finds the ranges of the row's token. A token under a choice for all layers, or one that makes none, only
/// resolves what it reads. All threads of a block call it.
/// @param scored  the row has been scored, if it chooses
template <class Policy, class T>
__device__ void choose_and_resolve(const layer_row<Policy, T>& row, bool scored, range_use use, block_threads& block,
                                   choice_scratch& scratch) {
  index_t reads = row.token.reads;
  if constexpr (reads_summaries<Policy>) {
    const Policy& policy = row.policy;
    if (policy.aggregate.per == scope::sequence) {
      if constexpr (decltype(Policy::aggregate)::counts) {
        if (scored && row.token.chooses >= 0) aggregate(policy.aggregate, row.to_aggregate(), block);
      }
    } else if (row.chooses()) {
      const index_t anyway = begin_choice(block, row.segments(), row.token.zone, row.slots(), row.left(), row.votes());
      aggregate(policy.aggregate, row.to_aggregate(), block);
      choose_row(block, scratch.walk, policy.select, row.to_choose(), anyway);
      __syncthreads();  // all threads resolve the levels and the cut that some have written
      reads = row.token.chooses;
    }
  }
  if (use == range_use::attention) find_ranges(row, reads, block);
}

}  // namespace zoomr::inline v0::detail

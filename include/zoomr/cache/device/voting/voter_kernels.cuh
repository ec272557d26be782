// SPDX-License-Identifier: Apache-2.0
// L6. Queries of the heads that vote are remembered, and score each segment: device twin of
// cache/host/choosing/key_scores.hpp (`shares_of_voters`).
//
//   mass(query, voter, segment)  = scorer(logits of the voter's query with the segment's keys between the zones)
//   share(query, voter, segment) = mass - ln of the sum of exp(mass) over the segments that the query scores
// Of the last queries the largest share counts. A query scores the segments whose details come before it. All sums are
// of integers, so that blocks and threads may share the work in any way.
#pragma once

#include <zoomr/cache/device/memory/layout.cuh>
#include <zoomr/cache/device/voting/segment_logits.cuh>
#include <zoomr/core/device/block.cuh>
#include <zoomr/math/softmax.cuh>
#include <zoomr/policy/score/key_mass.cuh>

namespace zoomr::inline v0::detail {

inline constexpr index_t voter_threads = 256;

/// Copies the queries in one row of `queries`, of the voters of one KV lane. All threads of a block call it.
/// @param queries  [tokens, heads, head_dim]  of the layer
/// @param to       [voters, head_dim]  out
template <class Number>
__device__ void copy_voter_queries(const voter_arrays& voting, voter_kv_lane kv_lane, view<const Number, 3> queries,
                                   index_t row, view<float, 2> to) {
  const index_t numbers = kv_lane.count * voting.model.head_dim;
  for (auto i = static_cast<index_t>(threadIdx.x); i < numbers; i += static_cast<index_t>(blockDim.x)) {
    const index_t voter = kv_lane.first + i / voting.model.head_dim, d = i % voting.model.head_dim;
    to(voter, d) = to_float(queries(row, voting.heads[voter], d));
  }
}

/// Remembers the queries of a token after the prompt, of the voters of one KV head of a layer. All threads of a block
/// call it.
/// @param queries  [tokens, heads, head_dim]
template <class Number>
__device__ void note_voters(const voter_arrays& voting, const device_token& token, index_t layer, index_t kv_head,
                            view<const Number, 3> queries) {
  if (layer == 0 && kv_head == 0 && threadIdx.x == 0) voting.known_at(token.sequence, token.position) = {};
  const view<float, 2> to = voting.queries_at(token.sequence, token.position);
  for (index_t at = voting.layer_begin[layer]; at < voting.layer_begin[layer + 1]; ++at) {
    const voter_kv_lane kv_lane = voting.kv_lanes[at];
    if (kv_lane.kv_head == kv_head) copy_voter_queries(voting, kv_lane, queries, token.row, to);
  }
}

/// Remembers until commit the last queries of a chunk of a prompt, of a layer's voters; a query in each block: query i
/// of the grid goes from row first_row + i of `queries` [tokens, heads, head_dim] to entry first + i of `chunk`.
template <class Number>
__global__ void remember_voters_kernel(voter_arrays voting, index_t layer, view<const Number, 3> queries,
                                       index_t first_row, index_t first) {
  const auto query = static_cast<index_t>(blockIdx.x);
  const view<float, 2> to = voting.pending_at(first + query);
  for (index_t at = voting.layer_begin[layer]; at < voting.layer_begin[layer + 1]; ++at) {
    copy_voter_queries(voting, voting.kv_lanes[at], queries, first_row + query, to);
  }
}

/// Makes them part of a sequence: a query in each block, from entry first + i of `chunk` to position + i.
template <class T>
__global__ void commit_voters_kernel(voter_arrays voting, index_t sequence, index_t first, index_t position) {
  const auto query = static_cast<index_t>(blockIdx.x);
  const float* const from = voting.pending_at(first + query).data();
  float* const to = voting.queries_at(sequence, position + query).data();
  for (std::int64_t i = threadIdx.x; i < voting.query_numbers(); i += blockDim.x) to[i] = from[i];
  if (threadIdx.x == 0) voting.known_at(sequence, position + query) = {};
}

/// Computes the masses that a choice needs and has not: of one KV lane's voters, for the last queries; a warp for each
/// segment.
///
/// Grid: tokens of the table and KV lanes of voters; blocks that share the segments of one. It comes after the kernels
/// that have remembered the queries, and stored the keys. A segment that reaches into a zone is measured for each
/// choice.
/// @cost  reads the keys of a segment once for each query without its mass, as a rule the newest one of each voter;
///        those of a segment of up to 32 keys, each of up to 256 bytes, once for all voters and queries of the KV lane.
///        Four blocks fit the registers of an SM without a spill: their 16 warps have up to 128 KB of keys under way
template <index_t HeadDim, class Scorer, class T>
__global__ void __launch_bounds__(scoring_threads, sizeof(T) == 4 ? 3 : 4)
    score_by_keys_kernel(Scorer scorer, common_arrays<T> a, voter_arrays voting, key_logits logits) {
  using segment_keys = segment_logits<HeadDim, T>;
  static_assert(fits_a_block<typename segment_keys::memory>, "score_by_keys: such keys are too large");
  __shared__ typename segment_keys::memory shared;
  const auto t = static_cast<index_t>(blockIdx.x) / voting.sizes.kv_lanes;
  if (t >= a.table.counts->tokens || a.table.tokens[t].chooses < 0) return;
  const device_token& token = a.table.tokens[t];
  const voter_kv_lane voter_lane = voting.kv_lanes[static_cast<index_t>(blockIdx.x) % voting.sizes.kv_lanes];
  const view<const segment> segments = a.segments_of(token.sequence, token.segments);
  const stored_layer<T> layer = a.layer(voter_lane.layer).read_only();
  constexpr index_t warps = scoring_threads / warp_lanes;
  const auto lane = static_cast<index_t>(threadIdx.x) % warp_lanes;
  const auto warp = static_cast<index_t>(blockIdx.y) * warps + static_cast<index_t>(threadIdx.x) / warp_lanes;
  for (index_t id = warp; id < token.segments; id += static_cast<index_t>(gridDim.y) * warps) {
    const segment scored = segments[id];
    const slot_map slots;
    const token_range details = between_zones(scored.begin, scored.split, token.zone, slots);
    const bool whole = details.size() == scored.split - scored.begin;
    segment_keys keys(layer, a.pages_of(token.sequence), voter_lane.kv_head, details, shared);
    for (index_t first = 0; first < token.scoring.size(); first += warp_lanes) {
      const index_t position = token.scoring.from_newest(first + lane);  // of the query that this lane looks after
      const bool has_query = first + lane < token.scoring.size();
      const bool seen = has_query && details.size() > 0 && scored.split <= position + 1;
      bool known = false;
      if (has_query) {
        const known_masses record = voting.known_at(token.sequence, position);
        known = record.after == position + 1 && id < record.segments;
      }
      for (index_t voter = voter_lane.first; voter < voter_lane.first + voter_lane.count; ++voter) {
        bool missing = seen;
        if (has_query) {
          float& mass = voting.masses_at(token.sequence, position)(voter, id);
          if (!seen && !known) mass = not_a_number;
          missing = seen && !(known && whole && !is_nan(mass));
        }
        for (unsigned left = __ballot_sync(all_lanes, missing ? 1 : 0); left != 0; left &= left - 1) {
          const index_t query_position = token.scoring.from_newest(first + __ffs(static_cast<int>(left)) - 1);
          keys.ask(voting.queries_at(token.sequence, query_position)[voter], logits.rule(voting.heads[voter]),
                   logits.scale, query_position);
          const float mass = score_keys(scorer, details.size(), keys);
          if (lane == 0) voting.masses_at(token.sequence, query_position)(voter, id) = mass;
        }
      }
    }
  }
}

/// Makes shares of the masses: a block for each token of the table and voter, a thread for some segments.
///
/// What was measured of a part of a segment is forgotten: the next choice may see another part. It comes after
/// score_by_keys_kernel, and after begin_kernel, which has counted what each segment has left.
/// @cost  three passes over the masses of all last queries; two barriers for each 32 queries
template <class T>
__global__ void __launch_bounds__(voter_threads, 4) share_kernel(common_arrays<T> a, voter_arrays voting) {
  __shared__ block_scratch scratch;
  const auto t = static_cast<index_t>(blockIdx.x);
  const auto voter = static_cast<index_t>(blockIdx.y);
  if (t >= a.table.counts->tokens || a.table.tokens[t].chooses < 0) return;
  const device_token& token = a.table.tokens[t];
  block_threads block(scratch);
  const view<const segment> segments = a.segments_of(token.sequence, token.segments);
  const view<const index_t> left{a.left + a.token_row(t, 0) * a.sizes.segments, {token.segments}};
  const view<float> shares = voting.shares_at(token.sequence, token.segments)[voter];
  for (index_t id = block.thread(); id < shares.size(); id += block.size()) shares[id] = not_a_number;
  const auto position = [&](index_t query) { return token.scoring.from_newest(query); };
  const auto mass_at = [&](index_t query, index_t id) -> float& {
    return voting.masses_at(token.sequence, position(query))(voter, id);
  };
  const auto scores = [&](index_t query, index_t id) {
    return left[id] > 0 && segments[id].split <= position(query) + 1;
  };
  each_softmax(
      block, token.scoring.size(), shares.size(),
      [&](index_t query, index_t id) -> softmax_logit {
        if (!scores(query, id)) return {};
        return mass_at(query, id);
      },
      [&](index_t query, index_t id, const auto& masses) {
        if (!scores(query, id)) return;
        float& mass = mass_at(query, id);
        const float log_sum = masses.log_sum();
        const float share = mass == log_sum ? 0.0f : mass - log_sum;  // of an infinity too
        if (is_nan(shares[id]) || share > shares[id]) shares[id] = share;
        if (left[id] < segments[id].split - segments[id].begin) mass = not_a_number;
      });
}

}  // namespace zoomr::inline v0::detail

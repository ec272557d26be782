// SPDX-License-Identifier: Apache-2.0
// L6. What a device cache keeps for heads that vote: the last queries of these heads, their scores of each segment, and
// working memory for one choice of each sequence. The host's half: cache/planning/voter_table.hpp,
// cache/host/choosing/key_masses.hpp.
#pragma once

#include <zoomr/cache/device/memory/sizes.cuh>
#include <zoomr/cache/planning/voter_table.hpp>
#include <zoomr/core/carver.hpp>
#include <zoomr/core/device/streams.cuh>
#include <zoomr/policy/concepts.hpp>

#include <algorithm>  // std::min

namespace zoomr::inline v0::detail {

/// Heads vote by several queries. What follows is compiled for such policies alone.
template <class Policy>
inline constexpr bool hears_voters = Policy::selects&& share_aggregator<decltype(Policy::aggregate)>;
/// The policy's aggregator reads the scores of voters alone, by summaries.
template <class Policy>
inline constexpr bool weighs_heads = Policy::selects&& weighing_aggregator<decltype(Policy::aggregate)>;
/// The policy's choices read summaries.
template <class Policy>
inline constexpr bool reads_summaries = Policy::selects&& decltype(Policy::score)::summary::rows > 0;

/// How many of what; all 0 for other policies.
struct voter_sizes {
  index_t voters = 0;
  index_t kv_lanes = 0;  // that voters read
  index_t heard = 0;     // last queries by which a choice is made
  index_t records = 0;   // of remembered queries, of one sequence
  index_t pending = 0;   // queries of prompts' chunks in one step
  index_t gathered = 0;  // voters of all ranks, where these divide heads

  voter_sizes() = default;
  /// Kept are the queries that a rollback may need, and those of a draft, which may be rejected.
  voter_sizes(const layout& host, const config& limits)
      : voters(host.voters), heard(host.heard), pending(host.heard > 0 ? host.pending_queries(limits) : 0) {
    if (heard == 0) return;
    kv_lanes = voter_table::count_kv_lanes(host.model, limits.own_voters(host.model.heads));
    if (!limits.ranks.alone()) gathered = voter_table::count(limits.voters);
    records = static_cast<index_t>(
        std::min<std::int64_t>(std::int64_t{host.remembered} + limits.max_draft_tokens, limits.max_tokens));
  }
};

/// All sizes of a device cache, for its host's half.
struct cache_sizes : device_sizes {
  voter_sizes voting;

  /// Something is remembered of the queries after the prompt.
  bool remembers_queries() const { return records > 0 || noted > 0 || voting.heard > 0; }

  cache_sizes() = default;
  /// @pre  as device_sizes
  cache_sizes(const shape& model_shape, const any_policy& policy, const config& limits, index_t splits_wanted,
              pages_in lie)
      : device_sizes(model_shape, policy, limits, splits_wanted, lie),
        voting(in_engine ? layout::without_pages(model_shape, policy, limits) : layout(model_shape, policy, limits),
               limits) {}
};

/// A KV lane that voters read, and which voters these are.
struct voter_kv_lane {
  index_t layer = 0;
  index_t kv_head = 0;
  index_t first = 0;  // voter; the others follow
  index_t count = 0;
};

/// For which position, and how many segments, a record has masses. All zero: for none.
struct known_masses {
  index_t after = 0;  // the position, and 1
  index_t segments = 0;
};

/// Kernels of the caller's stream alone touch it, in its order:
/// - kv_lanes, layer_begin, heads, weights: the constructor writes them.
/// - queries: layer_kernel writes those of the tokens after the prompts, a draft's too, which nothing reads unless they
///   are accepted; commit_voters_kernel those of a prompt. score_by_keys_kernel reads them.
/// - chunk: remember_voters_kernel, until commit_voters_kernel.
/// - masses, known: score_by_keys_kernel computes what is missing, share_kernel reads it, and forgets what was computed
///   of a part of a segment; choose_by_voters_kernel then enters what is there. A kernel that writes the query of a
///   position clears its record.
/// - shares: share_kernel, for choose_by_voters_kernel after it. A sequence makes one choice in a pass at most.
struct voter_arrays {
  voter_sizes sizes;
  shape model;
  index_t segments = 0;               // of one sequence
  voter_kv_lane* kv_lanes = nullptr;  // [kv_lanes]  by layer and KV head
  index_t* layer_begin = nullptr;     // [layers + 1]  the first KV lane of each layer
  index_t* heads = nullptr;           // [voters]  of the voter's layer
  float* weights = nullptr;           // [voters]
  float* queries = nullptr;           // [sequences][records][voters][head_dim]  by position
  float* chunk = nullptr;             // [pending][voters][head_dim]  of prompts, until commit
  float* masses = nullptr;            // [sequences][heard][voters][segments]  by position; NaN: not computed
  known_masses* known = nullptr;      // [sequences][heard]
  float* shares = nullptr;            // [sequences][voters][segments]
  posterior_gate gate;

  void carve(carver& from, const cache_sizes& cache) {
    sizes = cache.voting;
    model = cache.model;
    segments = cache.segments;
    const std::int64_t sequences = cache.sequences, voters = sizes.voters;
    kv_lanes = from.take<voter_kv_lane>(sizes.kv_lanes);
    layer_begin = from.take<index_t>(model.layers + 1);
    heads = from.take<index_t>(voters);
    weights = from.take<float>(voters);
    queries = from.take<float>(bounded_product({sequences, sizes.records, query_numbers()}));
    chunk = from.take<float>(bounded_product({sizes.pending, query_numbers()}));
    masses = from.take<float>(bounded_product({sequences, sizes.heard, voters, segments}));
    known = from.take<known_masses>(sequences * sizes.heard);
    shares = from.take<float>(bounded_product({sequences, voters, segments}));
  }
  /// Forgets the masses of some sequences.
  void forget_masses(index_t first, index_t sequences, stream_ref stream) const {
    const auto record = static_cast<byte_count>(sizeof(known_masses));
    zero_on_device(known + std::int64_t{first} * sizes.heard, sequences * std::int64_t{sizes.heard} * record, stream);
  }

  /// Numbers of one token's queries.
  ZOOMR_HD std::int64_t query_numbers() const { return std::int64_t{sizes.voters} * model.head_dim; }
  /// The queries of the token at a position.  [voters, head_dim]
  ZOOMR_HD view<float, 2> queries_at(index_t sequence, index_t position) const {
    const std::int64_t record = std::int64_t{sequence} * sizes.records + position % sizes.records;
    return {queries + record * query_numbers(), {sizes.voters, model.head_dim}};
  }
  /// Those of a prompt, until commit.  [voters, head_dim]
  ZOOMR_HD view<float, 2> pending_at(index_t place) const {
    return {chunk + place * query_numbers(), {sizes.voters, model.head_dim}};
  }
  ZOOMR_HD known_masses& known_at(index_t sequence, index_t position) const {
    return known[std::int64_t{sequence} * sizes.heard + position % sizes.heard];
  }
  /// Scores by the query of a position, for each voter.  [voters, segments]
  ZOOMR_HD view<float, 2> masses_at(index_t sequence, index_t position) const {
    const std::int64_t record = std::int64_t{sequence} * sizes.heard + position % sizes.heard;
    return {masses + record * sizes.voters * segments, {sizes.voters, segments}};
  }
  /// Of the first `count` segments.  [voters, count]
  ZOOMR_HD view<float, 2> shares_at(index_t sequence, index_t count) const {
    return {shares + std::int64_t{sequence} * sizes.voters * segments, {sizes.voters, count}, {segments, 1}};
  }
};

/// Where ranks divide heads: the shares of all their voters, in the order of the model's heads. Each rank writes its
/// own ones among zeros; as words they add up to those of all ranks.
struct gathered_shares {
  index_t voters = 0;        // of all ranks; 0: there is one
  index_t room = 0;          // floats of a row: whole words
  float* shares = nullptr;   // [sequences][voters][room]
  index_t* own = nullptr;    // [voters]  which of this rank's it is; -1: another rank's
  float* weights = nullptr;  // [voters]

  void carve(carver& from, const cache_sizes& cache) {
    voters = cache.voting.gathered;
    room = (cache.segments + 1) / 2 * 2;
    shares = from.take<float>(bounded_product({cache.sequences, voters, room}));
    own = from.take<index_t>(voters);
    weights = from.take<float>(voters);
  }
  /// Of a voter.  [room]
  ZOOMR_HD view<float> row(index_t sequence, index_t voter) const {
    return {shares + (std::int64_t{sequence} * voters + voter) * room, {room}};
  }
  /// `voting` with these in the place of its own shares, for choose_by_voters_kernel.
  voter_arrays in(voter_arrays voting) const {
    voting.sizes.voters = voters;
    voting.segments = room;
    voting.weights = weights;
    voting.shares = shares;
    return voting;
  }
};

/// A part of device_arrays: of policies whose voters have several queries, and of others.
struct some_voters {
  voter_arrays voting;
};
struct no_voters {};

/// The same, of policies that weigh heads. The constructor writes it.
struct some_weights {
  votes_t* head_weights = nullptr;  // [layers][heads]  voter_table::votes; 0: the head is no voter

  /// Of one layer.  [heads]
  ZOOMR_HD view<const votes_t> weights_in(index_t layer, index_t heads) const {
    return {head_weights + std::int64_t{layer} * heads, {heads}};
  }
};
struct no_weights {};

}  // namespace zoomr::inline v0::detail

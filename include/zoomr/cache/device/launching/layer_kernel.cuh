// SPDX-License-Identifier: Apache-2.0
// L6. All that a layer does before attention, in one launch: keys and values are stored, queries remembered, segments
// scored, and what a token reads is chosen and listed.
//
// A row is a KV head of a token; blocks share its segments. Each stores or remembers nothing that another one reads:
// every block makes the scoring queries by itself, and the first of a row keeps them. Scores go through global memory
// to the block that comes last of a choice's rows, which makes the choice. Attention comes in the next launch.
#pragma once

#include <zoomr/cache/device/choosing/choices.cuh>
#include <zoomr/cache/device/launching/kernels.cuh>
#include <zoomr/cache/device/voting/voter_kernels.cuh>

namespace zoomr::inline v0::detail {

/// What a layer of a pass brings. [tokens, heads or kv_heads, head_dim, or the width of values]
template <class Number>
struct layer_inputs {
  index_t layer = 0;
  view<const Number, 3> queries;
  view<const Number, 3> keys = {};    // without memory: they are stored already
  view<const Number, 3> values = {};  // where they are in keys: none
  float key_scale = 1.0f;
  float value_scale = 1.0f;
};

/// Stores one KV head's key and value of a token. All threads of a block call it.
template <class T, class Number>
__device__ void store_rows(const common_arrays<T>& a, const device_token& token, index_t kv_head,
                           const layer_inputs<Number>& in) {
  const index_t slot = pool_slot(a.pages_of(token.sequence), token.slot, a.sizes.page_bits);
  for (auto d = static_cast<index_t>(threadIdx.x); d < a.sizes.model.head_dim; d += static_cast<index_t>(blockDim.x)) {
    store_number(a, in.layer, token, slot, kv_head, d, in.keys, in.values, in.key_scale, in.value_scale);
  }
}

/// Keeps a token's queries in the heads of one KV head, for the choice that its commit makes. All threads of a block
/// call it.
template <class T, class Number>
__device__ void note_queries(const common_arrays<T>& a, const device_token& token, index_t kv_head,
                             const layer_inputs<Number>& in) {
  const shape& model = a.sizes.model;
  const view<float, 2> to = a.asking_of(token.sequence, in.layer);
  const index_t numbers = model.group() * model.head_dim;
  for (auto i = static_cast<index_t>(threadIdx.x); i < numbers; i += static_cast<index_t>(blockDim.x)) {
    const index_t head = kv_head * model.group() + i / model.head_dim, d = i % model.head_dim;
    to(head, d) = to_float(in.queries(token.row, head, d));
  }
}

/// The running sums of a token's queries, without its neighbours': those of a draft go on from the last one that an
/// earlier launch has written.
template <class T, class Number>
struct token_sums {
  const common_arrays<T>& a;
  const layer_inputs<Number>& in;
  index_t t;
  index_t first;  // of the table's tokens: of the same sequence, as all up to `t`

  __device__ token_sums(const common_arrays<T>& arrays, const layer_inputs<Number>& inputs, index_t token)
      : a(arrays), in(inputs), t(token), first(token) {
    const device_token* tokens = a.table.tokens;
    while (first > 0 && tokens[first - 1].sequence == tokens[t].sequence) --first;
  }
  __device__ float at(index_t head, index_t d) const {
    float sum = 0.0f;
    for (index_t j = first; j <= t; ++j) {
      const device_token& token = a.table.tokens[j];
      if (token.sums == 1) {
        sum = 0.0f;
      } else if (j == first) {
        sum = a.sums_of(token.sequence, token.position - 1, in.layer)(head, d);
      }
      sum += to_float(in.queries(token.row, head, d));
    }
    return sum;
  }
};

/// Makes the scoring queries of some heads of one KV head. All threads of a block call it; they see all of it after its
/// next barrier.
/// @param first       of these heads, in the model; `heads` of them
/// @param keeps_sums  the running sums are written for later tokens
/// @param out         [heads, head_dim]
template <class Policy, class T, class Number, index_t N>
__device__ void ask(const Policy& policy, const common_arrays<T>& a, const layer_inputs<Number>& in, index_t t,
                    index_t first, index_t heads, bool keeps_sums, shared_array<float, N>& out) {
  const device_token& token = a.table.tokens[t];
  const shape& model = a.sizes.model;
  const token_sums<T, Number> sums(a, in, t);
  const index_t numbers = heads * model.head_dim;
  for (auto n = static_cast<index_t>(threadIdx.x); n < numbers; n += static_cast<index_t>(blockDim.x)) {
    const index_t head = first + n / model.head_dim, d = n % model.head_dim;
    const float own = to_float(in.queries(token.row, head, d));
    float sum = own;
    if constexpr (decltype(Policy::query)::sums) {
      if (!token.prompt) sum = sums.at(head, d);
      if (keeps_sums) a.sums_of(token.sequence, token.position, in.layer)(head, d) = sum;
    }
    out[n] = policy.query.query(own, sum, token.sums);
  }
}

/// Numbers in the queries that score at once, at most: beside a choice's 17 KB they fit the shared memory of a block.
inline constexpr index_t most_asked = 7680;

/// Heads of a KV head that score at once, a power of two: all of them, unless keys are very wide.
template <index_t HeadDim>
ZOOMR_HD constexpr index_t asking_at_once(index_t heads) {
  return heads * HeadDim <= most_asked ? heads : asking_at_once<HeadDim>(heads / 2);
}

/// The blocks that share the segments of a row, at most `most`: each has 64 or more of them, but for the last.
__device__ inline index_t blocks_of_row(index_t segments, index_t most) {
  const index_t blocks = (segments + 63) / 64;
  return blocks < 1 ? 1 : blocks < most ? blocks : most;
}

/// Blocks of an SM that registers must suffice for: summaries on their way take most of them, of more segments where
/// fewer heads score at once.
template <class Policy, index_t Group>
constexpr int blocks_of_sm() {
  if constexpr (reads_summaries<Policy>) {
    return (decltype(Policy::score)::summary::rows > 1 ? 2 : 3) - (Group < 4 ? 1 : 0);
  } else {
    return 4;
  }
}

/// True if a head of the KV head has a weight; without one its scores are not read.
/// @param weights  [heads]  of the layer
__device__ inline bool any_votes(view<const votes_t> weights, index_t kv_head, index_t group) {
  for (index_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    if (weights[head] > 0) return true;
  }
  return false;
}

/// One layer of the tokens after their prompts, or of those that have ended one.
///
/// Grid: rows, blocks that may share one; blocks of choose_threads. Counters in `scored` find the last block of a
/// choice. It comes after prepare_kernel, and where one choice serves all layers after begin_kernel. query_tile_kernel,
/// fetching and gather_attend read the ranges.
/// @param scores  false: in a second pass and in dense layers nothing is chosen, unless for all layers
/// @param use     choice: for tokens that have ended a prompt; with others those are left out
/// @cost   each summary is read once for the heads of a KV head that score at once; where the heads of one choose
///         apart, their choices are made one after the other
template <index_t HeadDim, index_t Group, class Policy, class T, class Number>
__global__ void __launch_bounds__(choose_threads, blocks_of_sm<Policy, Group>())
    layer_kernel(Policy policy, device_arrays<Policy, T> a, layer_inputs<Number> in, bool scores, range_use use) {
  constexpr index_t heads = asking_at_once<HeadDim>(scored_heads<Group>);
  using queries_in_block = shared_array<float, reads_summaries<Policy> ? heads * HeadDim : 1>;
  static_assert(fits_a_block<choice_scratch, queries_in_block>, "layer_kernel: fewer heads must ask at once");
  __shared__ choice_scratch scratch;
  __shared__ queries_in_block block_queries;
  __shared__ shared_array<index_t, 1> last;
  let_next_launch_begin();
  const index_t kv_heads = a.sizes.model.kv_heads;
  const auto i = static_cast<index_t>(blockIdx.x);
  const index_t t = i / kv_heads, kv_head = i % kv_heads;
  if (t >= a.table.counts->tokens || (use != range_use::choice && a.table.tokens[t].prompt)) return;
  const device_token& token = a.table.tokens[t];
  const auto block_of_row = static_cast<index_t>(blockIdx.y);
  const bool is_first = block_of_row == 0;
  if (is_first && in.keys.data() != nullptr) store_rows(a, token, kv_head, in);

  index_t blocks = 1;  // that share the row
  if constexpr (reads_summaries<Policy>) {
    if (is_first && token.noted) note_queries(a, token, kv_head, in);
    using summary = typename device_arrays<Policy, T>::number;
    row_to_score<Number, summary> row;
    if (scores) row = rows_to_score<T, Number, summary>{a, a.summaries, in.layer, in.queries, 0, a.scales}.at(i);
    blocks = blocks_of_row(row.segments, static_cast<index_t>(gridDim.y));
    if (block_of_row >= blocks) return;
    if constexpr (weighs_heads<Policy>) {
      if (!any_votes(a.weights_in(in.layer, a.sizes.model.heads), kv_head, a.sizes.model.group())) row.segments = 0;
    }
    const bool keeps_sums = is_first && decltype(Policy::query)::sums && !token.prompt;
    const auto ask_and_score = [&](const row_to_score<Number, summary>& part, index_t first, index_t count) {
      if (row.segments > 0 || keeps_sums) ask(policy, a, in, t, first, count, keeps_sums, block_queries);
      __syncthreads();
      if (row.segments > 0) {
        constexpr index_t warps = choose_threads / warp_lanes;
        const scoring_warp<heads, HeadDim, decltype(Policy::score), Number, summary> warp{policy.score, part,
                                                                                          block_queries};
        warp.score_all(block_of_row * warps + static_cast<index_t>(threadIdx.x) / warp_lanes, blocks * warps);
      }
    };
    const index_t group = a.sizes.model.group();
    if constexpr (heads >= Group) {
      ask_and_score(row, kv_head * group, group);
    } else {
      for (index_t first = 0; first < group; first += heads) {
        if (first > 0) __syncthreads();  // queries of the heads before are no longer read
        const index_t count = group - first < heads ? group - first : heads;
        row_to_score<Number, summary> part = row;
        if (row.segments > 0) {
          part.queries = row.queries.slice(first, first + count);
          part.scores = row.scores.slice(first, first + count);
        }
        ask_and_score(part, kv_head * group + first, count);
      }
    }
  } else if (!is_first) {
    return;
  }
  if constexpr (hears_voters<Policy>) note_voters(a.voting, token, in.layer, kv_head, in.queries);

  if (use == range_use::known && (!scores || token.chooses < 0)) return;  // no vote to add, nothing to find

  // a row of the selection is that of all KV heads, or of one, or of some of its heads
  const index_t layer_rows = a.sizes.layer_rows;
  const bool for_all_heads = layer_rows == 1;
  const index_t coming = for_all_heads ? blocks * kv_heads : blocks;
  if (coming > 1) {
    if (!comes_last(a.scored + (for_all_heads ? t * kv_heads : i), coming, last)) return;
  } else {
    __syncthreads();  // what other threads have scored
  }
  block_threads block(scratch.block);
  const index_t first_row = for_all_heads ? 0 : i % kv_heads * layer_rows / kv_heads;
  const index_t end = for_all_heads ? 1 : first_row + layer_rows / kv_heads;
  for (index_t r = first_row; r < end; ++r) {
    choose_and_resolve(layer_row<Policy, T>{a, policy, token, t, r, in.layer}, scores, use, block, scratch);
  }
}

/// Blocks that share the rows of a layer at the most: three for each of 128 multiprocessors. More would make the same
/// queries again and again.
inline constexpr index_t most_layer_blocks = 384;

/// Launches it for so many tokens.
template <index_t HeadDim, index_t Group, class Policy, class T, class Number>
void launch_layer(const Policy& policy, const device_arrays<Policy, T>& a, const layer_inputs<Number>& in, bool scores,
                  range_use use, index_t tokens, stream_ref stream) {
  const index_t rows = tokens * a.sizes.model.kv_heads;
  index_t blocks = scores ? a.sizes.score_blocks() : 1;  // of a row
  if (blocks * rows > most_layer_blocks) blocks = rows < most_layer_blocks ? most_layer_blocks / rows : 1;
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(blocks));
  launch({grid, dim3(choose_threads)}, stream, layer_kernel<HeadDim, Group, Policy, T, Number>, policy, a, in, scores,
         use);
}

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L6. The rows of a step's attention, as device functors.
#pragma once

#include <zoomr/attend/gather.cuh>
#include <zoomr/attend/share.cuh>
#include <zoomr/cache/device_layout.cuh>

namespace zoomr {
inline namespace v0 {

/// Makes a row that of one of a token's readers.
template <class Row>
__device__ inline void read_by(Row& row, const device_sizes& sizes, const device_token& token, index reader) {
  row.token = token.row;
  row.heads = sizes.model.heads / sizes.readers();
  row.first_head = reader * row.heads;
  row.kv_head = row.first_head / sizes.model.group();
}

/// Rows of attention after the prompt, where each token reads alone: the runs that select_kernel has found.
template <class T>
struct chosen_rows {
  common_arrays<T> a;
  index count = 0;

  __device__ attending_row<tokens_of_runs> at(index i) const {
    const index readers = a.sizes.readers();
    const index t = i / readers;
    attending_row<tokens_of_runs> row;
    if (t >= a.table.counts->tokens || a.table.tokens[t].prompt) return row;
    row.tokens = a.tokens_of(t, a.sizes.layer_rows == 1 ? 0 : i % readers);
    read_by(row, a.sizes, a.table.tokens[t], i % readers);
    return row;
  }
};

/// Finds what the tokens of each share of a draft attend to together; a block for each share and row of its layer.
template <class T>
__global__ void __launch_bounds__(resolve_threads) share_kernel(common_arrays<T> a) {
  __shared__ block_scratch scratch;
  const auto s = static_cast<index>(blockIdx.x);
  const auto row = static_cast<index>(blockIdx.y);
  if (s >= a.table.counts->shares) return;
  const device_share share = a.table.shares[s];
  if (share.tokens == 1 || a.table.tokens[share.first].prompt) return;
  block_threads block(scratch);
  const auto list = [&](index j) { return run_edges{a.tokens_of(share.first + j, row).runs}; };
  const std::int64_t at = a.share_row(share, row);
  const index room = 2 * a.sizes.most_runs();
  const extents<1> all{{share.tokens * room}};
  const attended_size size = share_runs(
      block, list, share.tokens,
      {{a.shared_runs + at * room, all}, {a.shared_before + at * room, all}, {a.attending + at * room, all}});
  if (block.thread() == 0) a.shared_read[at] = size;
}

/// Rows of attention after the prompt, where the tokens of a share read together.
template <class T>
struct shared_rows {
  common_arrays<T> a;
  index count = 0;

  __device__ attending_row<shared_tokens_of_runs> at(index i) const {
    const index readers = a.sizes.readers();
    const index s = i / readers;
    attending_row<shared_tokens_of_runs> row;
    if (s >= a.table.counts->shares) return row;
    const device_share share = a.table.shares[s];
    const device_token& token = a.table.tokens[share.first];
    if (token.prompt) return row;
    const index of_layer = a.sizes.layer_rows == 1 ? 0 : i % readers;
    static_cast<tokens_of_runs&>(row.tokens) = a.tokens_of(share.first, of_layer);
    if (share.tokens > 1) {
      const std::int64_t at = a.share_row(share, of_layer);
      const std::int64_t first = at * 2 * a.sizes.most_runs();
      const extents<1> runs{{a.shared_read[at].runs}};
      row.tokens.runs = {a.shared_runs + first, runs};
      row.tokens.before = {a.shared_before + first, runs};
      row.tokens.attending = {a.attending + first, runs};
      row.tokens.tokens = a.shared_read[at].tokens;
    }
    row.sharing = share.tokens;
    read_by(row, a.sizes, token, i % readers);
    return row;
  }
};

/// The first tokens of a sequence, as some tokens of its prompt read them: each up to itself.
struct first_tokens {
  view<const index> pages;
  index tokens = 0;
  index first_asking = 0;  // the slot of the first of them

  ZOOMR_HD index count() const { return tokens; }
  ZOOMR_HD shared_token shared(index i) const {
    const index slot = pages[i / page_tokens] * page_tokens + i % page_tokens;
    return {slot, i <= first_asking ? ~0u : ~0u << (i - first_asking)};
  }
};

/// Rows of attention within prompts.
template <class T>
struct prompt_rows {
  common_arrays<T> a;
  index count = 0;
  index first_share = 0;

  __device__ attending_row<first_tokens> at(index i) const {
    const index kv_heads = a.sizes.model.kv_heads;
    attending_row<first_tokens> row;
    const device_share share = a.table.shares[first_share + i / kv_heads];
    const device_token& token = a.table.tokens[share.first];
    row.tokens = {a.pages_of(token.sequence), token.slot + share.tokens, token.slot};
    row.sharing = share.tokens;
    row.token = token.row;
    row.kv_head = i % kv_heads;
    row.heads = a.sizes.model.group();
    row.first_head = row.kv_head * row.heads;
    return row;
  }
};

}  // namespace v0
}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// L6. The rows of a step's attention, as device functors.
#pragma once

#include <zoomr/attend/gather.cuh>
#include <zoomr/cache/device_layout.cuh>

namespace zoomr {
inline namespace v0 {

/// Rows of attention after the prompt: the runs that select_kernel has found.
template <class Policy, class T>
struct chosen_rows {
  device_arrays<Policy, T> a;
  index count = 0;

  __device__ attending_row<tokens_of_runs> at(index i) const {
    const shape& model = a.sizes.model;
    const index readers = a.sizes.readers();
    const index t = i / readers;
    const index reader = i % readers;
    attending_row<tokens_of_runs> row;
    if (t >= a.table.counts->tokens || a.table.tokens[t].prompt) return row;
    const device_token& token = a.table.tokens[t];
    const std::int64_t at_row = a.token_row(t, a.sizes.layer_rows == 1 ? 0 : reader);
    const attended_size size = a.read[at_row];
    row.tokens = {{a.runs + at_row * a.sizes.most_runs(), {size.runs}},
                  {a.before + at_row * a.sizes.most_runs(), {size.runs}},
                  a.pages_of(token.sequence),
                  size.tokens,
                  4};
    row.token = token.row;
    row.heads = model.heads / readers;
    row.first_head = reader * row.heads;
    row.kv_head = row.first_head / model.group();
    return row;
  }
};

/// The first tokens of a sequence.
struct first_tokens {
  view<const index> pages;
  index tokens = 0;

  ZOOMR_HD index count() const { return tokens; }
  ZOOMR_HD index slot(index i) const { return pages[i / page_tokens] * page_tokens + i % page_tokens; }
};

/// Rows of attention within a prompt: all tokens up to the asking one.
template <class Policy, class T>
struct prompt_rows {
  device_arrays<Policy, T> a;
  index count = 0;

  __device__ attending_row<first_tokens> at(index i) const {
    const shape& model = a.sizes.model;
    attending_row<first_tokens> row;
    const index t = i / model.kv_heads;
    if (t >= a.table.counts->tokens || !a.table.tokens[t].prompt) return row;
    const device_token& token = a.table.tokens[t];
    row.tokens = {a.pages_of(token.sequence), token.slot + 1};
    row.token = token.row;
    row.kv_head = i % model.kv_heads;
    row.heads = model.group();
    row.first_head = row.kv_head * model.group();
    return row;
  }
};

}  // namespace v0
}  // namespace zoomr

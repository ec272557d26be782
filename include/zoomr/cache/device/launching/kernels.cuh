// SPDX-License-Identifier: Apache-2.0
// L6. What a step does on the device whatever the policy: it keeps keys, values and queries. All kernels of a step read
// its table: grids have a fixed size, and what has nothing to do ends at once, so that a step can be replayed as a
// graph.
//
// On the caller's stream `prepare` comes after the upload of the table and before whatever finds a page by its
// sequence; in each layer `append` comes first, then `remember`, then choices and attention (launches.cuh). None of the
// three uses shared memory or barriers.
#pragma once

#include <zoomr/cache/device/memory/layout.cuh>

namespace zoomr::inline v0::detail {

/// Threads of a block that moves numbers or looks for pages. append_kernel and remember_kernel go on by as many.
inline constexpr index_t plain_threads = 128;

/// A thread's place in a grid of one dimension, and how many there are: for lists whose length is in the table.
__device__ inline index_t grid_thread() { return static_cast<index_t>(blockIdx.x * blockDim.x + threadIdx.x); }
__device__ inline index_t grid_threads() { return static_cast<index_t>(gridDim.x * blockDim.x); }

/// Enters a step's pages and closed segments into their tables. The grid's size does not matter: its threads share out
/// the entries of the lists, no two of which go to the same place. Entries of pages that a sequence has given back stay
/// as they were, and mean nothing.
template <class T>
__global__ void prepare_kernel(common_arrays<T> a) {
  for (index_t i = grid_thread(); i < a.table.counts->pages; i += grid_threads()) {
    const device_page& page = a.table.pages()[i];
    a.page_entry(page.sequence, page.at) = page.page;
  }
  for (index_t i = grid_thread(); i < a.table.counts->closings; i += grid_threads()) {
    const device_closing& closing = a.table.closings()[i];
    a.segments[std::int64_t{closing.sequence} * a.sizes.segments + closing.id] = closing.closed;
  }
}

/// Stores dimension `d` of a token's key and value in one KV head, each as T of itself divided by its scale. A value
/// has fewer, or none of its own.
/// @param slot  of the pool
template <class T, class Number>
__device__ inline void store_number(const common_arrays<T>& a, index_t layer, const device_token& token, index_t slot,
                                    index_t kv_head, index_t d, const view<const Number, 3>& keys,
                                    const view<const Number, 3>& values, float key_scale, float value_scale) {
  const T stored_key = from_float<T>(quotient(to_float(keys(token.row, kv_head, d)), key_scale));
  const bool valued = d < a.sizes.model.stored_value_width();
  const T stored_value = valued ? from_float<T>(quotient(to_float(values(token.row, kv_head, d)), value_scale)) : T{};
  a.each_copy(layer, slot, kv_head, [&](T* key, T* value) {
    key[d] = stored_key;
    if (valued) value[d] = stored_value;
  });
}

/// Stores keys and values [tokens, kv_heads, their width] of one layer, a token in each block of `plain_threads`.
///
/// A key is stored as T of key / key_scale, a value likewise. Over tiers they go to the host's page, and to the copy
/// of it if the arena has one; so nothing may be fetched at the same time, and the caller has joined the side stream.
/// @pre   prepare_kernel has entered the pages of these tokens; the grid covers all tokens of the pass
/// @cost  the numbers of each token's keys and values
template <class T, class Number>
__global__ void append_kernel(common_arrays<T> a, index_t layer, view<const Number, 3> keys,
                              view<const Number, 3> values, float key_scale, float value_scale) {
  const auto t = static_cast<index_t>(blockIdx.x);
  if (t >= a.table.counts->tokens) return;
  const device_token& token = a.table.tokens[t];
  const shape& model = a.sizes.model;
  const index_t slot = pool_slot(a.pages_of(token.sequence), token.slot, a.sizes.page_bits);
  for (auto i = static_cast<index_t>(threadIdx.x); i < model.kv_heads * model.head_dim; i += plain_threads) {
    store_number(a, layer, token, slot, i / model.head_dim, i % model.head_dim, keys, values, key_scale, value_scale);
  }
}

/// Keeps the queries [tokens, heads, head_dim] of one layer by which a commit will choose, of the tokens that end a
/// prompt; layer_kernel keeps those of others.
///
/// A block of `plain_threads` for each sequence that the cache may have, since a graph serves steps of any of them. No
/// two blocks write the same.
/// @cost  each block goes through all tokens of the table; heads * head_dim numbers copied for each such token
template <class T, class Number>
__global__ void remember_kernel(common_arrays<T> a, index_t layer, view<const Number, 3> queries) {
  const auto sequence = static_cast<index_t>(blockIdx.x);
  const shape& model = a.sizes.model;
  for (index_t t = 0; t < a.table.counts->tokens; ++t) {
    const device_token& token = a.table.tokens[t];
    if (token.sequence != sequence || !token.noted) continue;
    for (auto i = static_cast<index_t>(threadIdx.x); i < model.heads * model.head_dim; i += plain_threads) {
      const index_t head = i / model.head_dim;
      const index_t d = i % model.head_dim;
      a.asking_of(sequence, layer)(head, d) = to_float(queries(token.row, head, d));
    }
  }
}

}  // namespace zoomr::inline v0::detail

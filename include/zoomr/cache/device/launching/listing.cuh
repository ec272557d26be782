// SPDX-License-Identifier: Apache-2.0
// L6. Slots of the pool for kernels of the engine's own: where it stores the keys and values of a pass, and what each
// token reads. Both kernels read what the step's own kernels read (rows.cuh), and can be part of a graph.
#pragma once

#include <zoomr/cache/device/launching/kernels.cuh>

namespace zoomr::inline v0::detail {

/// Writes the slot of each token of a pass, by its row among the packed tokens. Threads take tokens in turn. It comes
/// after prepare_kernel.
template <class T>
__global__ void list_own_slots_kernel(common_arrays<T> a, view<index_t> slots) {
  for (index_t t = grid_thread(); t < a.table.counts->tokens; t += grid_threads()) {
    const device_token& token = a.table.tokens[t];
    slots[token.row] = pool_slot(a.pages_of(token.sequence), token.slot, a.sizes.page_bits);
  }
}

/// Writes the slots that each token reads under each row of a layer, ascending in its sequence, and how many they are:
/// in a prompt all that it sees up to its own, after it those of the ranges that layer_kernel has found. Behind the
/// last slot stands -1. A block of `plain_threads` for each token and row.
/// @cost  O(log ranges) for each slot, a number written for each of the room
template <class T>
__global__ void list_slots_kernel(common_arrays<T> a, view<index_t, 3> slots, view<index_t, 2> counts) {
  const auto t = static_cast<index_t>(blockIdx.x);
  const auto row = static_cast<index_t>(blockIdx.y);
  if (t >= a.table.counts->tokens) return;
  const device_token& token = a.table.tokens[t];
  const auto list = [&](index_t count, auto slot) {
    for (auto i = static_cast<index_t>(threadIdx.x); i < slots.extent(2); i += plain_threads) {
      slots(token.row, row, i) = i < count ? slot(i) : -1;
    }
    if (threadIdx.x == 0) counts(token.row, row) = count;
  };
  if (token.prompt) {
    const view<const index_t> pages = a.pages_of(token.sequence);
    const index_t first = token.zone.begin;  // of a window: slots are positions
    list(token.slot + 1 - first, [&](index_t i) { return pool_slot(pages, first + i, a.sizes.page_bits); });
  } else {
    const tokens_of_ranges read = a.tokens_of(t, row);
    list(read.count(), [&](index_t i) { return read.slot(i); });
  }
}

}  // namespace zoomr::inline v0::detail

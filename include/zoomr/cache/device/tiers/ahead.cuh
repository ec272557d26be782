// SPDX-License-Identifier: Apache-2.0
// L6. Fetching what the next layer of a tiered placement will read, as far as that is certain while this one is
// attended. It comes on a side stream; the next layer's own kernels then find it in the arena, so that nothing else
// changes.
//
// Certain are prompts, tokens that attend to everything, and rows under an active choice, be it their layer's or one
// for all. A row that chooses in the next layer itself is not guessed.
//
// It runs beside attention and the caller's own work. The step's table, pages, segments and choices, which it reads,
// stay as they are until `append` of the next layer joins it. It writes the arena alone, but neither `places` nor a
// frame that the layer in progress reads: these attention is reading.
#pragma once

#include <zoomr/cache/device/choosing/choices.cuh>
#include <zoomr/cache/device/tiers/fetching.cuh>

namespace zoomr::inline v0::detail {

/// Requests the pages that the next pass will read in its layer, before the layer's own kernel does. A block for each
/// token and row; a thread for each segment of a choice, or for each page of what is attended whole.
/// @cost  the levels of all segments are read once; an atomic for each page that a part touches
template <class Policy, class T>
__global__ void expect_pages_kernel(Policy policy, device_arrays<Policy, T> a, index_t layer) {
  const auto t = static_cast<index_t>(blockIdx.x);
  if (t >= a.table.counts->tokens || !known_before(policy, a.table.tokens[t], layer)) return;
  const layer_row<Policy, T> row{a, policy, a.table.tokens[t], t, static_cast<index_t>(blockIdx.y), layer};
  const auto thread = static_cast<index_t>(threadIdx.x);
  const auto threads = static_cast<index_t>(blockDim.x);
  const part_of_pages pages{row.token.sequence, a.sizes.part_of_row(row.row)};
  const auto ask = [&](token_range slots, index_t begin, index_t step) {
    if (slots.size() <= 0) return;
    for (index_t at = slots.first / page_tokens + begin; at * page_tokens < slots.last; at += step) {
      ask_for_page(a, layer, pages, at, true);
    }
  };
  if (row.token.prompt || row.dense()) {
    const bool reads_most = !row.token.prompt || ends_chunk(a, t);
    if (a.sizes.first_of_part(row.row)) ask(slots_asked(row.token, reads_most), thread, threads);
    return;
  }
  const row_to_resolve to = row.to_resolve(row.token.reads);
  ask({to.slots.slot_of(to.zone.begin), to.slots.slot_of(to.zone.front)}, thread, threads);
  for (index_t id = thread; id < to.segments.size(); id += threads) {
    const attended_parts parts = parts_attended(to.segments[id], id, to.row, to.zone, to.own_summary, to.slots);
    ask(parts.details, 0, 1);
    ask(parts.summary, 0, 1);
  }
  ask({to.slots.slot_of(to.zone.back), to.slots.slot_of(to.zone.end)}, thread, threads);
}

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L6. Before a layer of a tiered placement is read: what of it is in the arena? What is not comes from the host, as far
// as there is room, and what is left is read where it is; so a pass reads the same numbers whatever the arena holds.
// The host takes no part: steps can be replayed as a graph.
//
// What is requested and comes is a block: a page in one layer, or where each KV head reads tokens of its own one KV
// head's part of it, so that nothing comes that no head reads. Which of the two is the policy's matter, as on the host
// (block_shape.hpp).
//
// Kernels one after the other: ask_for_pages_kernel lists each block that some row reads and the arena lacks,
// count_frames_kernel and give_frames_kernel (placing.cuh) give frames to as many as there is room for,
// fetch_pages_kernel copies them. They leave in `places`, for each part of a page that was requested, where the arena
// has it, or after that the host's page itself; attention reads through it. A pass here is one layer of a step;
// `counts->pass` numbers them.
//
// Everything that is appended is written to the host's page, and to the arena's copy if there is one. So a copy is
// never older than its page, and goes without being written back.
#pragma once

#include <zoomr/cache/device/memory/layout.cuh>
#include <zoomr/core/device/block.cuh>

namespace zoomr::inline v0::detail {

inline constexpr index_t fetch_threads = 256;

/// One part of the pages of a sequence, as a row reads them.
struct part_of_pages {
  index_t sequence = 0;
  index_t part = 0;
};

/// Requests a part of a page of a sequence for the next pass, the first time that it is called for it. Any thread may
/// call it for any of them: the one that is first to stamp it does the rest, so that a block is requested once.
/// @param at      the page, of the sequence's
/// @param ahead   while the pass before goes on: that pass's places stay as they are, and nothing is counted
template <class T>
__device__ inline void ask_for_page(const common_arrays<T>& a, index_t layer, part_of_pages pages, index_t at,
                                    bool ahead) {
  const auto& arena = a.arena;
  const unsigned pass = arena.counts->pass + 1;
  const unsigned stamp = 2 * pass + (ahead ? 1 : 0);
  const index_t entry = (pages.part * a.sizes.sequences + pages.sequence) * a.sizes.sequence_pages + at;
  if (atomicExch(&arena.stamps[entry], stamp) == stamp) return;
  const index_t page = a.pages_of(pages.sequence)[at];
  ZOOMR_ASSERT(page >= 0 && page < a.sizes.pages, "a page is asked for that the sequence does not have");
  const index_t frame = a.in_arena(layer, page, pages.part);
  if (frame >= 0) {
    arena.used[frame] = pass;
    if (ahead) return;
    arena.places[entry] = a.place_of(frame);
    atomicAdd(&arena.counts->found, 1u);
    if (arena.came_for[frame] == pass) atomicAdd(&arena.counts->prefetched_hits, 1ull);
  } else {
    if (!ahead) arena.places[entry] = a.host_place(page);
    arena.requests[atomicAdd(&arena.counts->requests, 1)] = {entry, page * a.sizes.page_parts + pages.part};
  }
}

/// True of the last token of a sequence in a pass, which in a prompt reads what all of them read.
template <class T>
__device__ inline bool ends_chunk(const common_arrays<T>& a, index_t t) {
  return t + 1 == a.table.counts->tokens || a.table.tokens[t + 1].sequence != a.table.tokens[t].sequence;
}

/// Slots that a token of a prompt requests: the last one of a chunk all that it sees, each before it the first that it
/// sees in a window. So together they request all that the chunk reads, at little cost. Where there is a window slots
/// are positions.
__device__ inline token_range slots_asked(const device_token& token, bool ends_chunk) {
  const index_t first = token.zone.begin;
  return {first, ends_chunk ? token.slot + 1 : first > 0 ? first + 1 : first};
}

/// Requests what a pass reads in one layer: of each row after the prompt the pages of its ranges, of a prompt all that
/// its tokens see; of these the parts that the row's KV head needs. A block for each token and row; no shared memory.
///
/// It comes after layer_kernel, whose ranges it reads, and after whatever went on beside the layer before.
/// @cost  O(log ranges) for each attended token, an atomic for each page of a row
template <class T>
__global__ void ask_for_pages_kernel(common_arrays<T> a, index_t layer) {
  const auto t = static_cast<index_t>(blockIdx.x);
  const auto row = static_cast<index_t>(blockIdx.y);
  if (t >= a.table.counts->tokens) return;
  const device_token& token = a.table.tokens[t];
  const part_of_pages pages{token.sequence, a.sizes.part_of_row(row)};
  const auto thread = static_cast<index_t>(threadIdx.x);
  const auto threads = static_cast<index_t>(blockDim.x);
  if (token.prompt) {
    if (!a.sizes.first_of_part(row)) return;
    const token_range slots = slots_asked(token, ends_chunk(a, t));
    for (index_t at = slots.first / page_tokens + thread; at * page_tokens < slots.last; at += threads) {
      ask_for_page(a, layer, pages, at, false);
    }
    return;
  }
  const tokens_of_ranges read = a.tokens_of(t, row);
  for (index_t i = thread; i < read.tokens; i += threads) {
    const index_t slot = read.sequence_slot(i);
    const bool begins = slot % page_tokens == 0 || i == 0 || read.sequence_slot(i - 1) != slot - 1;
    if (begins) ask_for_page(a, layer, pages, slot / page_tokens, false);
  }
}

/// Copies a page in one layer; threads take 16 bytes. All threads of a block call it.
template <class T>
__device__ inline void copy_page(const T* page, T* copy, std::int64_t numbers) {
  const auto* from = reinterpret_cast<const uint4*>(page);
  auto* to = reinterpret_cast<uint4*>(copy);
  const std::int64_t pieces = numbers * static_cast<std::int64_t>(sizeof(T)) / 16;
  for (std::int64_t p = threadIdx.x; p < pieces; p += blockDim.x) to[p] = from[p];
}

/// Copies one part of a page in one layer to a frame of the arena: its keys, then its values.
template <class T>
__device__ inline void copy_to_arena(const common_arrays<T>& a, const T* page, index_t part, index_t frame) {
  const std::int64_t all_keys = a.sizes.page_keys();
  const std::int64_t keys = all_keys / a.sizes.page_parts;
  const std::int64_t values = (a.sizes.page_numbers() - all_keys) / a.sizes.page_parts;
  T* const copy = a.arena_page(frame);
  const index_t part_there = a.part_at(frame);
  copy_page(page + part * keys, copy + part_there * keys, keys);
  copy_page(page + all_keys + part * values, copy + all_keys + part_there * values, values);
}

/// Copies what has just got a frame, from the host's memory. The kernel's blocks take those of the arena in turn;
/// `fetched` counts them.
/// @cost  page_numbers() / page_parts numbers over the bus for each
template <class T>
__global__ void fetch_pages_kernel(common_arrays<T> a, index_t layer) {
  const index_t parts = a.sizes.page_parts;
  for (auto i = static_cast<index_t>(blockIdx.x); i < a.arena.counts->fetched; i += static_cast<index_t>(gridDim.x)) {
    const index_t block = a.arena.requests[i].block;
    copy_to_arena(a, a.page(layer, block / parts), block % parts, a.arena.grants[i]);
  }
}

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L6. The rows of a step's attention, as device functors: each block of gather_attend calls for its own (gather.cuh).
// What a row names is in tables that earlier kernels of the stream have filled: the step's, those of ranges, and that
// of pages, which over tiers is `device_arena::places`.
//
// Over tiers KV heads may have places of their own, which other caches need not look up: hence the argument `Tiered`.
//
// Row i is that of reader i % readers of token, or query tile, i / readers: a reader is a KV head, or a query head
// where each chooses alone.
#pragma once

#include <zoomr/attention/gather.cuh>
#include <zoomr/attention/query_tile.cuh>
#include <zoomr/cache/device/memory/layout.cuh>

namespace zoomr::inline v0::detail {

/// Makes a row that of one of a token's readers: its place among the queries, its KV head and its query heads.
template <class Row, class T>
__device__ inline void read_by(Row& row, const common_arrays<T>& a, const device_token& token, index_t reader,
                               index_t layer) {
  const shape& model = a.sizes.model;
  row.token = token.row;
  row.heads = model.heads / a.sizes.readers();
  row.first_head = reader * row.heads;
  row.kv_head = row.first_head / model.group();
  row.slots = a.eviction.slots_of(token.sequence, layer * model.kv_heads + row.kv_head, token.held);
  row.position = token.position;
}

/// Rows of attention after the prompt, where each token reads alone: the ranges that layer_kernel has found.
template <class T, bool Tiered = false>
struct chosen_rows {
  common_arrays<T> a;
  index_t count = 0;  // that the grid covers; a row without a token has no heads, and its blocks end
  index_t layer = 0;

  __device__ attending_row<tokens_of_ranges> at(index_t i) const {
    const index_t readers = a.sizes.readers();
    const index_t t = i / readers;
    attending_row<tokens_of_ranges> row;
    if (t >= a.table.counts->tokens || a.table.tokens[t].prompt) return row;
    row.tokens = a.tokens_of(t, a.sizes.layer_rows == 1 ? 0 : i % readers);
    read_by(row, a, a.table.tokens[t], i % readers, layer);
    if constexpr (Tiered) row.tokens.pages = a.pages_of(a.table.tokens[t].sequence, row.kv_head);
    return row;
  }
};

/// Finds what the tokens of each query tile of a draft attend to together; a block for each tile and row of its layer.
///
/// It comes after layer_kernel, whose ranges it joins, and before gather_attend. A tile of one token is read from the
/// token's own ranges. Shared memory: that of block collectives.
/// @cost  as join_ranges
template <class T>
__global__ void __launch_bounds__(resolve_threads) query_tile_kernel(common_arrays<T> a) {
  __shared__ block_scratch scratch;
  const auto s = static_cast<index_t>(blockIdx.x);
  const auto row = static_cast<index_t>(blockIdx.y);
  if (s >= a.table.counts->tiles) return;
  const device_query_tile tile = a.table.tiles()[s];
  if (tile.tokens == 1 || a.table.tokens[tile.first].prompt) return;
  block_threads block(scratch);
  const auto list = [&](index_t j) { return range_edges{a.tokens_of(tile.first + j, row).ranges}; };
  const std::int64_t at = a.tile_row(tile, row);
  const index_t room = 2 * a.sizes.most_ranges();
  const extents<1> list_extent{{tile.tokens * room}};
  const attended_size size = join_ranges(block, list, tile.tokens,
                                         {{a.shared_ranges + at * room, list_extent},
                                          {a.shared_before + at * room, list_extent},
                                          {a.attending + at * room, list_extent}});
  if (block.thread() == 0) a.shared_read[at] = size;
}

/// Rows of attention after the prompt, where the tokens of a query tile read together: one for each tile and reader.
template <class T, bool Tiered = false>
struct shared_rows {
  common_arrays<T> a;
  index_t count = 0;
  index_t layer = 0;

  __device__ attending_row<tile_of_ranges> at(index_t i) const {
    const index_t readers = a.sizes.readers();
    const index_t s = i / readers;
    attending_row<tile_of_ranges> row;
    if (s >= a.table.counts->tiles) return row;
    const device_query_tile tile = a.table.tiles()[s];
    const device_token& token = a.table.tokens[tile.first];
    if (token.prompt) return row;
    const index_t of_layer = a.sizes.layer_rows == 1 ? 0 : i % readers;
    static_cast<tokens_of_ranges&>(row.tokens) = a.tokens_of(tile.first, of_layer);
    if (tile.tokens > 1) {
      const std::int64_t at = a.tile_row(tile, of_layer);
      const std::int64_t first = at * 2 * a.sizes.most_ranges();
      const extents<1> ranges{{a.shared_read[at].ranges}};
      row.tokens.ranges = {a.shared_ranges + first, ranges};
      row.tokens.before = {a.shared_before + first, ranges};
      row.tokens.attending = {a.attending + first, ranges};
      row.tokens.tokens = a.shared_read[at].tokens;
    }
    row.sharing = tile.tokens;
    read_by(row, a, token, i % readers, layer);
    if constexpr (Tiered) row.tokens.pages = a.pages_of(token.sequence, row.kv_head);
    return row;
  }
};

/// The tokens of a sequence, as some tokens of a prompt read them: each up to itself, from the first slot or as far
/// back as a window lets it see. They need no list of ranges: of a prompt nothing is evicted before its end, and where
/// there is a window, never.
struct tokens_before {
  view<const index_t> pages;
  token_range slots;         // that some of them see
  index_t first_asking = 0;  // the slot of the first of them
  index_t window = 0;        // logit_rule::window
  index_t page_bits = 4;

  ZOOMR_HD index_t count() const { return slots.size(); }
  ZOOMR_HD index_t sequence_slot(index_t i) const { return slots.first + i; }
  ZOOMR_HD shared_token shared(index_t i) const {
    const index_t slot = sequence_slot(i);
    unsigned attending = slot <= first_asking ? ~0u : ~0u << (slot - first_asking);
    const std::int64_t last = std::int64_t{slot} + window - 1 - first_asking;  // of those that see it
    if (window > 0 && last < 31) attending &= (2u << last) - 1;
    return {pool_slot(pages, slot, page_bits), attending};
  }
};

/// Rows of attention within prompts: one for each query tile and KV head. The grid fits them exactly, since a graph has
/// none.
template <class T, bool Tiered = false>
struct prompt_rows {
  common_arrays<T> a;
  index_t count = 0;
  index_t first_tile = 0;
  index_t layer = 0;

  __device__ attending_row<tokens_before> at(index_t i) const {
    const index_t kv_heads = a.sizes.model.kv_heads;
    attending_row<tokens_before> row;
    const device_query_tile tile = a.table.tiles()[first_tile + i / kv_heads];
    const device_token& token = a.table.tokens[tile.first];
    row.tokens = {a.pages_of(token.sequence, Tiered ? i % kv_heads : 0),
                  {token.zone.begin, token.slot + tile.tokens},
                  token.slot,
                  a.sizes.window,
                  a.sizes.page_bits};
    row.sharing = tile.tokens;
    row.token = token.row;
    row.position = token.position;
    row.kv_head = i % kv_heads;
    row.slots = a.eviction.slots_of(token.sequence, layer * kv_heads + row.kv_head, token.held);
    row.heads = a.sizes.model.group();
    row.first_head = row.kv_head * row.heads;
    return row;
  }
};

}  // namespace zoomr::inline v0::detail

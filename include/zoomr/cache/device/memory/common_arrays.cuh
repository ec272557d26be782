// SPDX-License-Identifier: Apache-2.0
// L6. The part of a device cache's memory (layout.cuh) that depends on no policy.
#pragma once

#include <zoomr/attention/gather_output.cuh>
#include <zoomr/attention/query_tile.cuh>
#include <zoomr/cache/device/memory/sizes.cuh>
#include <zoomr/cache/device/memory/table.cuh>
#include <zoomr/paging/device_arena.cuh>

namespace zoomr::inline v0::detail {

/// Takes room for the largest table from a block.
inline device_table carve_table(carver& from, const device_sizes& sizes) {
  std::byte* const at = from.take<std::byte>(table_lists::bytes(sizes.most_listed()));
  if (at == nullptr) return {};
  return {reinterpret_cast<device_counts*>(at), reinterpret_cast<device_token*>(at + sizeof(device_counts))};
}

/// What a device cache keeps on the device, but for its summaries. Nothing here depends on the policy, so that a kernel
/// which takes no more is compiled once for all policies.
///
/// Who writes and who reads what stays from step to step:
/// - page_table, segments: prepare_kernel; whatever finds a key, summarises or chooses.
/// - pool: append_kernel or layer_kernel, and compact_kernel; attention, summaries, observation, fetching.
/// - sums: layer_kernel; layer_kernel at later tokens.
/// - choice_queries: layer_kernel or remember_kernel; layer_kernel of the commit.
/// - levels, rows: layer_kernel, choose_for_all_kernel; these at later tokens, expect_pages_kernel. Where choices do
///   not stay active, the next layer overwrites them.
/// - arrived: gather_attend alone, scored: layer_kernel alone; both leave zeros. The constructor clears them, and the
///   tables of the arena.
/// - sinks, slopes, engine: the constructor; attention, and whatever finds a key.
///
/// Of the tokens of one pass, and written again in its next layer; where one choice serves all layers, votes go on
/// instead:
/// - scores: layer_kernel, whose blocks count themselves in `scored`; the one that comes last reads them.
/// - votes, left: begin_kernel, layer_kernel, choose_for_all_kernel one after the other, or layer_kernel alone.
/// - ranges, before, read: layer_kernel; query_tile_kernel, ask_for_pages_kernel, gather_attend.
/// - shared_ranges, shared_before, attending, shared_read: query_tile_kernel; gather_attend.
/// - partial: gather_attend alone.
template <class T>
struct common_arrays {
  device_sizes sizes;
  device_table table;
  T* pool = nullptr;     // [layers][pages] as of device_sizes::to_value; of a tiered placement: the host's
  T** engine = nullptr;  // [layers][keys | values]  page 0 of an engine's memory; nullptr: the pages are the pool's
  index_t* page_table = nullptr;    // [sequences][sequence_pages]
  index_t heads_apart = 0;          // rows of it from KV head to KV head; 0: all of them have the same pages
  segment* segments = nullptr;      // [sequences][segments]
  float* sums = nullptr;            // [sequences][records][layers][heads][head_dim]  by position
  float* choice_queries = nullptr;  // [sequences][layers][heads][head_dim]  of an item's last token, for its commit
  level* levels = nullptr;          // [places][place_rows][segments]
  selection_row* rows = nullptr;    // [places][place_rows]
  float* scores = nullptr;          // [decode_tokens][heads][segments]
  unsigned* scored = nullptr;       // [decode_tokens][kv_heads]
  votes_t* votes = nullptr;         // [decode_tokens][layer_rows][segments]
  index_t* left = nullptr;          // [decode_tokens][layer_rows][segments]
  token_range* ranges = nullptr;    // [decode_tokens][layer_rows][most_ranges]
  index_t* before = nullptr;        // [decode_tokens][layer_rows][most_ranges]
  attended_size* read = nullptr;    // [decode_tokens][layer_rows]
  token_range* shared_ranges =
      nullptr;                       // [layer_rows][decode_tokens][2 * most_ranges]  of the tokens that read together
  index_t* shared_before = nullptr;  // [layer_rows][decode_tokens][2 * most_ranges]
  unsigned* attending = nullptr;     // [layer_rows][decode_tokens][2 * most_ranges]
  attended_size* shared_read = nullptr;  // [layer_rows][decode_tokens]
  float* partial = nullptr;              // [attending_heads][splits][state_numbers(value width)]
  unsigned* arrived = nullptr;           // [attending_heads]
  float* sinks = nullptr;                // [layers][heads]  natural; nullptr: the model has none
  float* slopes = nullptr;               // [heads]  the same, of a bias by distance
  eviction_arrays eviction;
  device_arena<T> arena;
  device_resummarize resummarize;

  /// Takes what is declared here, but for the table, from a block. What the policy does not need has no bytes.
  void carve(carver& from, const device_sizes& cache) {
    sizes = cache;
    const shape& model = cache.model;
    if (cache.tiered) {
      arena.carve(from, cache.arena_frames, model.layers, cache.pages, cache.page_parts,
                  std::int64_t{cache.sequences} * cache.sequence_pages, cache.page_numbers());
    } else if (cache.in_engine) {
      engine = from.take<T*>(2 * std::int64_t{model.layers});
    } else {
      pool = from.take<T>(cache.pool_numbers());
    }
    page_table = from.take<index_t>(std::int64_t{cache.sequences} * cache.sequence_pages);
    segments = from.take<segment>(std::int64_t{cache.sequences} * cache.segments);
    const std::int64_t rows_of_tokens = std::int64_t{cache.decode_tokens} * cache.layer_rows;
    ranges = from.take<token_range>(bounded_product({rows_of_tokens, cache.most_ranges()}));
    before = from.take<index_t>(bounded_product({rows_of_tokens, cache.most_ranges()}));
    read = from.take<attended_size>(rows_of_tokens);
    scored = from.take<unsigned>(cache.counters());
    const std::int64_t shared_room = cache.shared_range_room();
    shared_ranges = from.take<token_range>(shared_room);
    shared_before = from.take<index_t>(shared_room);
    attending = from.take<unsigned>(shared_room);
    shared_read = from.take<attended_size>(cache.decode_tiles > 0 ? rows_of_tokens : 0);
    if (cache.selects) {
      const std::int64_t layer_queries = model.layers * cache.query_numbers();
      sums = from.take<float>(bounded_product({cache.sequences, cache.records, layer_queries}));
      choice_queries =
          from.take<float>(cache.persists && cache.summary_numbers > 0 ? cache.sequences * layer_queries : 0);
      levels = from.take<level>(bounded_product({cache.places, cache.place_rows, cache.segments}));
      rows = from.take<selection_row>(std::int64_t{cache.places} * cache.place_rows);
      const index_t scored_segments = cache.summary_numbers > 0 ? cache.segments : 0;  // keys are scored elsewhere
      scores = from.take<float>(bounded_product({cache.decode_tokens, model.heads, scored_segments}));
      votes = from.take<votes_t>(bounded_product({rows_of_tokens, cache.segments}));
      left = from.take<index_t>(bounded_product({rows_of_tokens, cache.segments}));
    }
    partial = from.take<float>(
        cache.splits > 1 ? bounded_product({cache.attending_heads(), cache.splits, state_numbers(model.value_width())})
                         : 0);
    arrived = from.take<unsigned>(cache.attending_heads());
    if (cache.has_sinks) sinks = from.take<float>(std::int64_t{model.layers} * model.heads);
    if (cache.has_slopes) slopes = from.take<float>(model.heads);
    eviction.carve(from, cache);
  }
  void clear_counters(stream_ref stream) const {
    zero_on_device(arrived, sizes.attending_heads() * static_cast<byte_count>(sizeof(unsigned)), stream);
    zero_on_device(scored, sizes.counters() * static_cast<byte_count>(sizeof(unsigned)), stream);
  }

  // Where things are.

  /// Pages of a sequence.  [sequence_pages]  Only the entries of pages that hold slots of it mean something.
  /// @param kv_head  of a layer: it matters where the table names places of single KV heads (device_arena::places)
  ZOOMR_HD view<const index_t> pages_of(index_t sequence, index_t kv_head = 0) const {
    const std::int64_t row = kv_head * heads_apart + sequence;
    return {page_table + row * sizes.sequence_pages, {sizes.sequence_pages}};
  }
  /// One entry of that table, to be written.
  ZOOMR_HD index_t& page_entry(index_t sequence, index_t at) const {
    return page_table[std::int64_t{sequence} * sizes.sequence_pages + at];
  }
  /// The first `count` closed segments of a sequence, ascending; those after may be of tokens that were rolled back.
  ZOOMR_HD view<const segment> segments_of(index_t sequence, index_t count) const {
    return {segments + std::int64_t{sequence} * sizes.segments, {count}};
  }
  /// What is to be summarised: what the table lists, or all segments of one sequence resummarize.
  ZOOMR_HD index_t closing_count() const {
    return resummarize.sequence < 0 ? table.counts->closings : resummarize.segments;
  }
  ZOOMR_HD device_closing closing(index_t i) const {
    if (resummarize.sequence < 0) return table.closings()[i];
    return {resummarize.sequence, i, segments_of(resummarize.sequence, resummarize.segments)[i], resummarize.held};
  }
  /// A page of the pool in one layer.
  ZOOMR_HD T* page(index_t layer, index_t page) const {
    return pool + sizes.page_of(layer, page) * sizes.page_numbers();
  }
  /// Keys and values of a layer by slot of the pool: that of the cache, or an engine's, whose addresses only the device
  /// finds here (device_core::layer).
  ZOOMR_HD paged_layer<T> layer(index_t layer) const {
    if (engine != nullptr) return sizes.pages_at(engine[2 * layer], engine[2 * layer + 1]);
    return in_block(page(layer, 0));
  }
  /// The same of pages that are in a block of the cache's own layout.
  ZOOMR_HD paged_layer<T> in_block(T* block) const { return sizes.pages_at(block, block + sizes.to_value()); }
  /// Which of the arena's frames has a part of a page of a layer; -1: none, or there is no arena.
  /// @pre  no fetch is under way on the side stream
  __device__ index_t in_arena(index_t layer, index_t page, index_t part) const {
    return sizes.tiered ? arena.block_frames[sizes.block_of(layer, page, part)] - 1 : -1;
  }
  /// The page of the arena in which a frame is, and which part of that it is.
  ZOOMR_HD T* arena_page(index_t frame) const { return arena.memory + frame / sizes.page_parts * sizes.page_numbers(); }
  ZOOMR_HD index_t part_at(index_t frame) const { return frame % sizes.page_parts; }
  /// How attention names a frame of the arena: its page and its part, separable without a division (tiered_layer).
  /// Behind all of these, pages of the host have their own numbers.
  ZOOMR_HD index_t place_of(index_t frame) const {
    return (frame / sizes.page_parts) << sizes.part_bits | part_at(frame);
  }
  ZOOMR_HD index_t host_place(index_t page) const {
    return ((arena.frames / sizes.page_parts) << sizes.part_bits) + page;
  }
  /// write(key, value) for each place where a token's rows are kept: in its page, and in the arena's copy of that.
  /// @param slot  of the pool
  /// @pre   as of in_arena
  template <class Write>
  __device__ void each_copy(index_t layer, index_t slot, index_t kv_head, Write write) const {
    const auto stored = this->layer(layer);
    const std::int64_t at = stored.offset(slot, kv_head);
    write(stored.keys + at, stored.values + at);
    const index_t frame = in_arena(layer, slot >> sizes.page_bits, sizes.part_of(kv_head));
    if (frame < 0) return;
    const paged_layer<T> copied = in_block(arena_page(frame));
    const index_t head_there = sizes.page_parts == 1 ? kv_head : part_at(frame);
    const std::int64_t in_page = copied.offset(slot & ((1 << sizes.page_bits) - 1), head_there);
    write(copied.keys + in_page, copied.values + in_page);
  }
  /// Where the summaries of a KV lane begin, in numbers.
  ZOOMR_HD std::int64_t summaries_at(index_t sequence, index_t kv_lane) const {
    return scales_at(sequence, kv_lane) * std::int64_t{sizes.summary_numbers};
  }
  /// Where their scales do.
  ZOOMR_HD std::int64_t scales_at(index_t sequence, index_t kv_lane) const {
    return (std::int64_t{sequence} * sizes.model.kv_lanes() + kv_lane) * sizes.segments;
  }
  /// The queries of the tokens from the begin of a token's segment, or the end of the prompt, up to it, added up.
  /// [heads, head_dim]  A ring by position.
  /// @pre  sizes.records > 0
  ZOOMR_HD view<float, 2> sums_of(index_t sequence, index_t position, index_t layer) const {
    const std::int64_t record = std::int64_t{sequence} * sizes.records + position % sizes.records;
    return {sums + (record * sizes.model.layers + layer) * sizes.query_numbers(),
            {sizes.model.heads, sizes.model.head_dim}};
  }
  /// The queries of the token whose choice is made by the commit.  [heads, head_dim]
  ZOOMR_HD view<float, 2> asking_of(index_t sequence, index_t layer) const {
    return {choice_queries + (std::int64_t{sequence} * sizes.model.layers + layer) * sizes.query_numbers(),
            {sizes.model.heads, sizes.model.head_dim}};
  }
  /// Row `row` of layer `layer` of the selection at `place`: where in `rows`. Layers have the same rows if one choice
  /// serves them all, or if none outlives its layer.
  ZOOMR_HD std::int64_t place_row(index_t place, index_t layer, index_t row) const {
    const index_t in_place = sizes.place_rows > sizes.layer_rows ? layer * sizes.layer_rows + row : row;
    return std::int64_t{place} * sizes.place_rows + in_place;
  }
  /// Levels of a row, of as many segments as there were at the choice.  [count]
  /// @param of_place  as `place_row` returns it
  ZOOMR_HD view<level> levels_of(std::int64_t of_place, index_t count) const {
    return {levels + of_place * sizes.segments, {count}};
  }
  /// Where a token of the table has its entry in what is [decode_tokens][layer_rows].
  ZOOMR_HD std::int64_t token_row(index_t token, index_t row) const {
    return std::int64_t{token} * sizes.layer_rows + row;
  }
  /// What a token attends to under row `row`, once layer_kernel has found it.
  ZOOMR_HD tokens_of_ranges tokens_of(index_t token, index_t row) const {
    const std::int64_t at = token_row(token, row);
    const index_t size = read[at].ranges;
    return {{ranges + at * sizes.most_ranges(), {size}},
            {before + at * sizes.most_ranges(), {size}},
            pages_of(table.tokens[token].sequence),
            read[at].tokens,
            sizes.page_bits};
  }
  /// Where `shared_read` has what a query tile reads under row `row`; its lists begin at 2 * most_ranges times as much.
  ZOOMR_HD std::int64_t tile_row(const device_query_tile& tile, index_t row) const {
    return std::int64_t{row} * sizes.decode_tokens + tile.first;
  }
};

}  // namespace zoomr::inline v0::detail

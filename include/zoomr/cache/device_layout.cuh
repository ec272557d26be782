// SPDX-License-Identifier: Apache-2.0
// L6. What a device cache keeps in memory. Plain data: host and device see the same.
#pragma once

#include <zoomr/attend/share.cuh>
#include <zoomr/cache/device_arena.cuh>
#include <zoomr/cache/device_sizes.cuh>
#include <zoomr/cache/device_table.cuh>

namespace zoomr {
inline namespace v0 {

/// Takes the parts of a step's table from a block.
inline device_table carve_table(carver& from, const device_sizes& sizes) {
  device_table table;
  table.counts = from.take<device_counts>(1);
  table.tokens = from.take<device_token>(sizes.step_tokens);
  table.closings = from.take<device_closing>(sizes.most_closings());
  table.pages = from.take<device_page>(sizes.most_pages());
  table.shares = from.take<device_share>(sizes.step_tokens);
  return table;
}

/// How a query lies to the one that has chosen: their product, and that of each with itself.
struct drift_products {
  float along = 0.0f;
  float now = 0.0f;
  float then = 0.0f;
};

/// What a device cache keeps on the device, but for its summaries. Nothing here depends on the policy, so that a kernel
/// which takes no more is compiled once for all policies.
template <class T>
struct common_arrays {
  device_sizes sizes;
  device_table table;
  T* pool = nullptr;            // [layers][pages][key | value][kv_heads][16][head_dim]  of a tiered store: the host's
  index* page_table = nullptr;  // [sequences][sequence_pages]
  segment* segments = nullptr;  // [sequences][segments]
  float* sums = nullptr;        // [sequences][records][layers][heads][head_dim]  by position
  float* references = nullptr;  // [places][layers][heads][head_dim]  the queries that have chosen; only for drift
  drift_products* products = nullptr;    // [decode_tokens][layer_rows]
  index* drifted = nullptr;              // [decode_tokens][layer_rows]  1: the row chooses anew
  float* asking = nullptr;               // [sequences][layers][heads][head_dim]  queries of the prompt's last token
  level* levels = nullptr;               // [places][place_rows][segments]
  selection_row* rows = nullptr;         // [places][place_rows]
  float* scores = nullptr;               // [decode_tokens][heads][segments]
  tally* tallies = nullptr;              // [decode_tokens][layer_rows][segments]
  index* left = nullptr;                 // [decode_tokens][layer_rows][segments]
  run* runs = nullptr;                   // [decode_tokens][layer_rows][most_runs]
  index* before = nullptr;               // [decode_tokens][layer_rows][most_runs]
  attended_size* read = nullptr;         // [decode_tokens][layer_rows]
  run* shared_runs = nullptr;            // [layer_rows][decode_tokens][2 * most_runs]  of the tokens that read together
  index* shared_before = nullptr;        // [layer_rows][decode_tokens][2 * most_runs]
  unsigned* attending = nullptr;         // [layer_rows][decode_tokens][2 * most_runs]
  attended_size* shared_read = nullptr;  // [layer_rows][decode_tokens]
  float* partial = nullptr;              // [attending_heads][splits][head_dim + 2]
  unsigned* arrived = nullptr;           // [attending_heads]
  retained_arrays retained;
  device_arena<T> arena;
  device_again again;

  /// Takes what is declared here, but for the table, from a block.
  void carve(carver& from, const device_sizes& of) {
    sizes = of;
    const shape& model = of.model;
    if (of.tiered) {
      arena.carve(from, of.arena_slots, model.layers, of.pages, std::int64_t{of.sequences} * of.sequence_pages,
                  of.page_numbers());
    } else {
      pool = from.take<T>(of.pool_numbers());
    }
    page_table = from.take<index>(std::int64_t{of.sequences} * of.sequence_pages);
    segments = from.take<segment>(std::int64_t{of.sequences} * of.segments);
    const std::int64_t rows_of_tokens = std::int64_t{of.decode_tokens} * of.layer_rows;
    runs = from.take<run>(bounded_product({rows_of_tokens, of.most_runs()}));
    before = from.take<index>(bounded_product({rows_of_tokens, of.most_runs()}));
    read = from.take<attended_size>(rows_of_tokens);
    const std::int64_t shared_room = of.shared_run_room();
    shared_runs = from.take<run>(shared_room);
    shared_before = from.take<index>(shared_room);
    attending = from.take<unsigned>(shared_room);
    shared_read = from.take<attended_size>(of.decode_shares > 0 ? rows_of_tokens : 0);
    if (of.selects) {
      const std::int64_t layer_queries = model.layers * of.query_numbers();
      sums = from.take<float>(bounded_product({of.sequences, of.records, layer_queries}));
      references = from.take<float>(of.drifts ? bounded_product({of.places, layer_queries}) : 0);
      products = from.take<drift_products>(of.drifts ? rows_of_tokens : 0);
      drifted = from.take<index>(of.drifts ? rows_of_tokens : 0);
      asking = from.take<float>(of.persists ? of.sequences * layer_queries : 0);
      levels = from.take<level>(bounded_product({of.places, of.place_rows, of.segments}));
      rows = from.take<selection_row>(std::int64_t{of.places} * of.place_rows);
      scores = from.take<float>(bounded_product({of.decode_tokens, model.heads, of.segments}));
      tallies = from.take<tally>(bounded_product({rows_of_tokens, of.segments}));
      left = from.take<index>(bounded_product({rows_of_tokens, of.segments}));
    }
    partial =
        from.take<float>(of.splits > 1 ? bounded_product({of.attending_heads(), of.splits, model.head_dim + 2}) : 0);
    arrived = from.take<unsigned>(of.attending_heads());
    retained.carve(from, of);
  }

  // Where things lie.

  ZOOMR_HD view<const index> pages_of(index sequence) const {
    return {page_table + std::int64_t{sequence} * sizes.sequence_pages, {sizes.sequence_pages}};
  }
  ZOOMR_HD view<const segment> segments_of(index sequence, index count) const {
    return {segments + std::int64_t{sequence} * sizes.segments, {count}};
  }
  /// What is to be summarised: what the table lists, or all segments of one sequence again.
  ZOOMR_HD index closing_count() const { return again.sequence < 0 ? table.counts->closings : again.segments; }
  ZOOMR_HD device_closing closing(index i) const {
    if (again.sequence < 0) return table.closings[i];
    return {again.sequence, i, segments_of(again.sequence, again.segments)[i], again.held};
  }
  ZOOMR_HD T* key(index layer, index page, index kv_head) const {
    return pool + (std::int64_t{layer} * sizes.pages + page) * sizes.page_numbers() +
           std::int64_t{kv_head} * page_tokens * sizes.model.head_dim;
  }
  /// Where the arena, if there is one, has a copy of a key of this page; nullptr if it has none. What is written to the
  /// page must be written there too.
  __device__ T* in_arena(const T* key, index layer, index page) const {
    if (!sizes.tiered) return nullptr;
    const index slot = arena.slot_of[std::int64_t{layer} * sizes.pages + page] - 1;
    return slot < 0 ? nullptr : arena.memory + slot * sizes.page_numbers() + (key - this->key(layer, page, 0));
  }
  ZOOMR_HD std::int64_t value_offset() const { return sizes.page_numbers() / 2; }
  /// Where the summaries of a lane begin.
  ZOOMR_HD std::int64_t summaries_at(index sequence, index lane) const {
    return (std::int64_t{sequence} * sizes.model.lanes() + lane) * sizes.segments * std::int64_t{sizes.summary_numbers};
  }
  ZOOMR_HD view<float, 2> sums_of(index sequence, index position, index layer) const {
    const std::int64_t record = std::int64_t{sequence} * sizes.records + position % sizes.records;
    return {sums + (record * sizes.model.layers + layer) * sizes.query_numbers(),
            {sizes.model.heads, sizes.model.head_dim}};
  }
  ZOOMR_HD view<float, 2> asking_of(index sequence, index layer) const {
    return {asking + (std::int64_t{sequence} * sizes.model.layers + layer) * sizes.query_numbers(),
            {sizes.model.heads, sizes.model.head_dim}};
  }
  ZOOMR_HD view<float, 2> reference_of(index place, index layer) const {
    return {references + (std::int64_t{place} * sizes.model.layers + layer) * sizes.query_numbers(),
            {sizes.model.heads, sizes.model.head_dim}};
  }
  /// False if row `row` of a token that chooses keeps what is in force.
  ZOOMR_HD bool chooses_anew(index token, index row) const {
    return !sizes.drifts || drifted[token_row(token, row)] != 0;
  }
  /// Row `row` of layer `layer` of the selection at `place`.
  ZOOMR_HD std::int64_t place_row(index place, index layer, index row) const {
    const index in_place = sizes.place_rows > sizes.layer_rows ? layer * sizes.layer_rows + row : row;
    return std::int64_t{place} * sizes.place_rows + in_place;
  }
  ZOOMR_HD view<level> levels_of(std::int64_t of_place, index count) const {
    return {levels + of_place * sizes.segments, {count}};
  }
  ZOOMR_HD std::int64_t token_row(index token, index row) const { return std::int64_t{token} * sizes.layer_rows + row; }
  /// What a token attends to under row `row`.
  ZOOMR_HD tokens_of_runs tokens_of(index token, index row) const {
    const std::int64_t at = token_row(token, row);
    const index size = read[at].runs;
    return {{runs + at * sizes.most_runs(), {size}},
            {before + at * sizes.most_runs(), {size}},
            pages_of(table.tokens[token].sequence),
            read[at].tokens,
            4};
  }
  /// Where `shared_read` has what a share reads under row `row`; its lists begin at 2 * most_runs times as much.
  ZOOMR_HD std::int64_t share_row(const device_share& share, index row) const {
    return std::int64_t{row} * sizes.decode_tokens + share.first;
  }
};

/// Everything that a device cache keeps on the device.
template <class Policy, class T>
struct device_arrays : common_arrays<T> {
  using number = typename layout<Policy>::number;  // of summaries

  number* summaries = nullptr;  // [sequences][lanes][segments][head_dim][rows]

  /// Takes everything but the table from a block.
  void carve(carver& from, const device_sizes& of) {
    common_arrays<T>::carve(from, of);
    summaries = from.take<number>(bounded_product({of.sequences, of.model.lanes(), of.segments, of.summary_numbers}));
  }
  /// Where the tokens of a lane lie; a policy that gives none up pays nothing for it.
  ZOOMR_HD slot_map slots_of(index sequence, index lane, held_slots held) const {
    if constexpr (decltype(Policy::retain)::observes) {
      return this->retained.slots_of(sequence, lane, held);
    } else {
      return {};
    }
  }
};

}  // namespace v0
}  // namespace zoomr

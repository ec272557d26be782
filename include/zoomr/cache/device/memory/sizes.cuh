// SPDX-License-Identifier: Apache-2.0
// L6. How many of everything a device cache has, by its policy and limits. Plain data: host and device see the same.
//
// Computed once, when a cache is made or its bytes are computed. What is carved (layout.cuh), how large grids are
// (launches) and where kernels look all follow from these numbers, so that they cannot disagree. None changes later: a
// graph has them in the arguments of its kernels.
#pragma once

#include <zoomr/attention/token_list.cuh>
#include <zoomr/cache/config.hpp>
#include <zoomr/cache/device/eviction/eviction_state.cuh>
#include <zoomr/cache/device/memory/table.cuh>
#include <zoomr/cache/planning/layout.hpp>
#include <zoomr/cache/planning/plan.hpp>
#include <zoomr/cache/tokens/token_state.hpp>

#include <algorithm>  // std::clamp, std::max, std::min
#include <string>     // std::to_string

namespace zoomr::inline v0::detail {

/// Heads of all query tokens that read together, at most: the rows of a tensor core's tile.
inline constexpr index_t most_tile_heads = 16;

/// Where pages are: in the cache's own pool, in the host's memory with an arena on the device, in an engine's memory.
enum class pages_in { pool, tiers, engine };

/// How many of everything a device cache has.
///
/// A row is what one scope shares of a selection; a place holds one choice: `place_rows` rows, of one layer where the
/// choice serves its own token alone, else of all layers.
struct device_sizes {
  shape model;
  index_t sequences = 0;
  index_t max_batched_tokens = 0;
  index_t decode_tokens = 0;    // of a step, after the prompt
  index_t decode_tiles = 0;     // of these; 0: there are no drafts, each token reads alone
  index_t pages = 0;            // of the pool
  index_t arena_frames = 0;     // blocks that the device holds of a tiered placement
  index_t page_parts = 1;       // blocks of a page in one layer: 1, or one for each KV head
  index_t part_bits = 0;        // 2^part_bits are as many or more
  index_t sequence_pages = 0;   // of one sequence
  index_t page_bits = 4;        // a page has 2^page_bits tokens
  kv_strides strides;           // of pages, KV heads and tokens, for keys as for values
  index_t segments = 0;         // of one sequence
  index_t pins = 0;             // of these, how many a step may pin and no longer pin, at most
  index_t summary_numbers = 0;  // of one segment in one KV lane
  index_t layer_rows = 0;       // rows of a selection in one layer
  index_t place_rows = 0;       // rows of one place
  index_t ring = 0;             // places of one sequence, where choices stay active
  index_t places = 0;
  index_t records = 0;          // of query sums, of one sequence
  index_t splits = 1;           // blocks that may share one row's tokens
  index_t tokens = 0;           // of one sequence
  index_t kept = 0;             // tokens that a KV lane may keep; 0: none is ever evicted
  index_t noted = 0;            // queries remembered until tokens are evicted again
  index_t remembered = 0;       // of the last queries of a prompt that is still coming
  index_t pending_queries = 0;  // of the prompts' chunks in one step
  index_t window = 0;           // logit_rule::window
  index_t carried = 0;          // tokens whose attention adds up, of each query head; 0: it does not
  score_logits logits;          // of scores, for aggregators
  bool has_sinks = false;       // of the model's attention
  bool has_slopes = false;      // the same, of a bias by distance
  bool selects = false;
  bool tiered = false;      // pages are in the host's memory, and in an arena
  bool in_engine = false;   // pages are in an engine's memory
  bool reads_keys = false;  // to evict tokens
  bool persists = false;

  device_sizes() = default;
  /// @param with_splits   as `device_cache` was given
  /// @param lie           where; of a tiered placement `arena_frames` stays 0: others size it
  /// @pre   `expect_possible` has let them pass, and `problem` has no sentence for them
  device_sizes(const shape& model_shape, const any_policy& policy, const config& limits, index_t with_splits,
               pages_in lie)
      : model(model_shape), tiered(lie == pages_in::tiers), in_engine(lie == pages_in::engine) {
    sequences = limits.max_sequences;
    max_batched_tokens = limits.max_batched_tokens;
    decode_tokens = static_cast<index_t>(std::min<std::int64_t>(
        limits.max_batched_tokens, std::int64_t{limits.max_sequences} * limits.max_draft_tokens));
    if (limits.max_draft_tokens > 1 && tile_tokens() > 1) {
      const index_t of_draft = (limits.max_draft_tokens + tile_tokens() - 1) / tile_tokens();
      decode_tiles = static_cast<index_t>(std::min<std::int64_t>(decode_tokens, std::int64_t{sequences} * of_draft));
    }
    const layout host =
        in_engine ? layout::without_pages(model_shape, policy, limits) : layout(model_shape, policy, limits);
    size_pages(limits, host);
    if (tiered) page_parts = model.kv_heads / host.blocks.heads;
    while (1 << part_bits < page_parts) ++part_bits;
    segments = host.most_segments;
    pins = static_cast<index_t>(most_pins(policy, segments));
    tokens = limits.max_tokens;
    window = host.window;
    kept = host.kept;
    noted = host.noted;
    carried = host.carried;
    remembered = host.remembered;
    pending_queries = host.pending_queries(limits);
    layer_rows = policy.evict.observes ? model.kv_heads : 1;  // each KV head may have tokens of its own
    selects = policy.selects;
    reads_keys = policy.evict.reads_keys;
    logits = limits.logits.of_scores(model.head_dim);
    has_sinks = limits.logits.sinks.data() != nullptr;
    has_slopes = limits.logits.alibi_slopes.size() > 0;
    if (selects) {
      summary_numbers = static_cast<index_t>(host.segment_summary());
      layer_rows = rows_in_layer(policy.aggregate.per);
      persists = policy.persists();
      place_rows = persists ? host.selection_rows : layer_rows;
      // Each of the last rollback_depth() tokens may have made a choice, and a rollback before all of them needs the
      // one before. One place more is for the choice that is being made.
      ring = persists ? limits.rollback_depth() + 2 : 0;
      places = persists ? sequences * ring : decode_tokens;
      // The sum of a token goes on from that of the one before it. So kept are those of all tokens that can be rolled
      // back, of the one before them, and of a draft, which may be rejected.
      records = policy.query.sums ? limits.rollback_depth() + 1 + limits.max_draft_tokens : 0;
    }
    splits = with_splits > 0 ? with_splits : splits_for(std::int64_t{sequences} * readers());
  }

  /// Segments of one sequence, out of so many, that one step may pin, and those that it may no longer pin.
  static std::int64_t most_pins(const any_policy& policy, index_t segments) {
    const std::int64_t pinned = std::int64_t{policy.zone.preamble} + policy.zone.question;
    return 2 * (std::min)(std::int64_t{segments}, pinned);
  }
  /// nullptr, or a sentence: what of the policy cannot work, or which of these numbers would not fit an index_t.
  static const char* problem(const any_policy& policy, const config& limits) {
    if (policy.evict.observes && policy.zone.question > 0) {
      return "device_cache: an evictor that observes keeps no question on a device: zones.question must be 0";
    }
    const std::int64_t sequences = limits.max_sequences;
    bool fits = limits.max_batched_tokens + (3 + most_pins(policy, limits.most_segments())) * sequences <= unlimited &&
                std::int64_t{limits.rollback_depth()} + 1 + limits.max_draft_tokens <= unlimited - most_tile_heads &&
                std::int64_t{4} * limits.most_segments() + 4 <= unlimited;
    if (policy.persists()) fits = fits && sequences * (limits.rollback_depth() + 2) <= unlimited;
    return fits ? nullptr
                : "device_cache: max_batched_tokens + 3 sequences, rollback_tokens + max_draft_tokens, 4 segments and "
                  "sequences * (rollback_tokens + 2) must be less than 2^31";
  }

  /// Pages of a tiered pool, and frames of its arena, at most. Places of the arena are numbered up to twice as far
  /// (part_bits), and pages after them: 16 tokens of each have room in an index_t.
  static constexpr index_t most_tiered = 1 << 25;
  /// nullptr, or a sentence: what of a tiered placement cannot work.
  static const char* tiers_problem(const shape& model, const any_policy& policy, const config& limits) {
    const std::int64_t pages = pages_for(pool_tokens(policy, limits));
    const std::int64_t parts = model.kv_heads / layout(model, policy, limits).blocks.heads;
    if (pages > most_tiered || bounded_product({pages, model.layers, parts}) > unlimited) {
      return "device_cache: a tiered pool has at most 2^25 pages, and fewer than 2^31 blocks in all layers (of one KV "
             "head where each reads tokens of its own)";
    }
    if (bounded_product({limits.max_sequences, pages_for(limits.max_tokens), parts}) > unlimited) {
      return "device_cache: of a tiered cache, sequences * pages of max_tokens, * KV heads where each reads tokens of "
             "its own, must be less than 2^31";
    }
    return nullptr;
  }
  /// Pages of all sequences, and parts: what the arena has a place for.
  std::int64_t arena_entries() const { return std::int64_t{sequences} * sequence_pages * page_parts; }
  /// Bytes of an arena for a page of one layer, with what is kept of its frames.
  byte_count arena_page_bytes(std::size_t number_bytes, byte_count frame_bytes) const {
    return page_numbers() * static_cast<byte_count>(number_bytes) + page_parts * frame_bytes;
  }
  /// An arena has what is left of the device's bytes, but no more frames than there are blocks.
  /// @param beside_arena  bytes that everything else takes
  /// @param page          arena_page_bytes
  /// @throws precondition_error if no frame is left
  void size_arena(const tier_bytes& limits, byte_count beside_arena, byte_count page) {
    ZOOMR_EXPECTS(limits.device >= beside_arena + page,
                  "config: tiers.device is " + std::to_string(limits.device) + " bytes; it must be at least " +
                      std::to_string(beside_arena + page) + ", for summaries, tables and a page of one layer");
    arena_frames = frames_in((limits.device - beside_arena) / page);
  }
  /// Slots of an arena that has room for so many pages of one layer: no more than there are blocks, nor than 2^25.
  index_t frames_in(std::int64_t room) const {
    const std::int64_t blocks = (std::min)(std::int64_t{model.layers} * pages, std::int64_t{most_tiered / page_parts});
    return static_cast<index_t>((std::min)(room, blocks) * page_parts);
  }

  /// Blocks that may share a row, where there may be so many rows: together some hundreds, which fill a device.
  static index_t splits_for(std::int64_t rows) {
    return static_cast<index_t>(std::clamp<std::int64_t>(512 / (std::max)(rows, std::int64_t{1}), 4, 64));
  }
  /// Rows of a selection in one layer; one that serves all layers counts as one in each.
  index_t rows_in_layer(scope per) const {
    return per == scope::head ? model.heads : per == scope::kv_head ? model.kv_heads : 1;
  }
  /// Rows of attention for each token: one for each KV head, or for each head where each chooses alone.
  ZOOMR_HD index_t readers() const { return layer_rows == model.heads ? model.heads : model.kv_heads; }
  /// Query tokens that may share a load: as many as a block of gather_attend has room for heads.
  ZOOMR_HD index_t tile_tokens() const { return model.group() < most_tile_heads ? most_tile_heads / model.group() : 1; }
  /// Heads for which rows have room, present or not: `partial` has `splits` states for each, `arrived` a counter.
  std::int64_t attending_heads() const {
    if (decode_tiles > 0) return std::int64_t{decode_tiles} * readers() * most_tile_heads;
    return std::int64_t{decode_tokens} * readers() * model.group();
  }
  /// Rows of scoring, each of which has a counter.
  std::int64_t counters() const { return std::int64_t{decode_tokens} * model.kv_heads; }
  /// Ranges for which the lists of query tiles have room, over all tokens and rows of a layer; 0 without drafts. For
  /// each token of a tile it is twice `most_ranges`: a shared range ends wherever a range of some token begins or ends.
  std::int64_t shared_range_room() const {
    return decode_tiles > 0 ? bounded_product({decode_tokens, layer_rows, 2, most_ranges()}) : 0;
  }
  /// Blocks that share the scoring of one row: enough to spread a long index, few enough for a short one.
  index_t score_blocks() const { return std::min<index_t>(64, segments / 128 + 1); }
  /// Of one token under one row: details and summary of each segment, and two zones.
  ZOOMR_HD index_t most_ranges() const { return 2 * segments + 2; }
  /// Closed segments for which one table has room, and those that are pinned or no longer are; `list_closings` asserts
  /// that they suffice.
  index_t most_closings() const { return max_batched_tokens + (3 + pins) * sequences; }
  /// Pages that hold so many slots.
  ZOOMR_HD index_t pages_of(index_t slots) const {
    return (slots >> page_bits) + ((slots & ((1 << page_bits) - 1)) != 0 ? 1 : 0);
  }
  /// Entries of page tables that one step may change: n tokens in a row touch at most n / 16 + 2 pages. An engine may
  /// replace one sequence's pages.
  index_t most_pages() const { return pages_of(max_batched_tokens) + 2 * sequences + (in_engine ? sequence_pages : 0); }
  /// Pages that one step may have to copy: of each sequence the one that has room for a token, and those to which an
  /// eviction moves tokens; never more than there are. An engine copies its own.
  index_t most_copies() const {
    const std::int64_t copied_pages = kept > 0 ? pages_of(kept) + 1 : 1;
    return in_engine ? 0 : static_cast<index_t>(std::min<std::int64_t>(pages, sequences * copied_pages));
  }
  /// Entries for which a table has room.
  device_counts most_listed() const {
    return {max_batched_tokens, max_batched_tokens, most_closings(), most_pages(), most_copies()};
  }
  /// Floats of one token's queries in one layer.
  ZOOMR_HD std::int64_t query_numbers() const { return std::int64_t{model.heads} * model.head_dim; }
  /// Numbers of type T in all pages of all layers.
  std::int64_t pool_numbers() const { return bounded_product({model.layers, pages, page_numbers()}); }
  /// Those of one page in one layer: keys, then values, of 16 tokens in each KV head. Where values are narrower, each
  /// token's value is after its key, so that both are as far apart.
  ZOOMR_HD std::int64_t page_numbers() const {
    return std::int64_t{page_tokens} * model.kv_heads * (model.head_dim + model.stored_value_width());
  }
  /// From a key of the cache's own pages to its value.
  ZOOMR_HD std::int64_t to_value() const {
    if (model.values_in_keys) return 0;
    return model.value_width() == model.head_dim ? page_numbers() / 2 : model.head_dim;
  }
  ZOOMR_HD std::int64_t block_numbers() const { return page_numbers() / page_parts; }
  /// Of a page those in front of its values: its keys; all, where each value is after its key, or in it.
  ZOOMR_HD std::int64_t page_keys() const {
    return model.stored_value_width() == model.head_dim ? page_numbers() / 2 : page_numbers();
  }
  /// The part of a page, hence its block in a layer, that holds a KV head; and the one that a row of a layer reads.
  ZOOMR_HD index_t part_of(index_t kv_head) const { return page_parts == 1 ? 0 : kv_head; }
  ZOOMR_HD index_t part_of_row(index_t row) const { return page_parts == 1 ? 0 : row * page_parts / layer_rows; }
  /// The number of a page in one layer among those of all layers; and that of a block.
  ZOOMR_HD std::int64_t page_of(index_t layer, index_t page) const { return std::int64_t{layer} * pages + page; }
  ZOOMR_HD std::int64_t block_of(index_t layer, index_t page, index_t part) const {
    return page_of(layer, page) * page_parts + part;
  }
  /// True of one of the rows that read a part.
  ZOOMR_HD bool first_of_part(index_t row) const { return row == 0 || part_of_row(row) != part_of_row(row - 1); }
  /// Pages whose keys and values begin there.
  template <class T>
  ZOOMR_HD paged_layer<T> pages_at(T* keys, T* values) const {
    return {keys, values, strides.page, strides.head, strides.token, page_bits};
  }

 private:
  void size_pages(const config& limits, const layout& host) {
    sequence_pages = host.table_pages;
    if (in_engine) {
      const engine_memory& engine = limits.engine;
      pages = engine.pages;
      page_bits = 0;
      while (1 << page_bits < engine.page_tokens) ++page_bits;
      strides = engine.strides_of_keys();
    } else {
      pages = host.pool_pages();
      const bool alternate = model.value_width() != model.head_dim && !model.values_in_keys;
      const index_t token = model.head_dim + (alternate ? model.value_width() : 0);
      strides = {page_numbers(), std::int64_t{page_tokens} * token, token};
    }
  }
};

}  // namespace zoomr::inline v0::detail

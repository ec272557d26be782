// SPDX-License-Identifier: Apache-2.0
// L6. How many of everything a device cache has, by its policy and limits. Plain data: host and device see the same.
#pragma once

#include <zoomr/cache/config.hpp>
#include <zoomr/cache/device_retained.cuh>
#include <zoomr/cache/plan.hpp>
#include <zoomr/cache/sequence_state.hpp>

namespace zoomr {
inline namespace v0 {

/// Heads of all query tokens that read together, at most: the rows of a tensor core's tile.
inline constexpr index most_sharing = 16;

/// How many of everything a device cache has.
struct device_sizes {
  shape model;
  index sequences = 0;
  index step_tokens = 0;
  index decode_tokens = 0;    // of a step, after the prompt
  index decode_shares = 0;    // of these; 0: there are no drafts, each token reads alone
  index pages = 0;            // of the pool
  index arena_slots = 0;      // blocks that the device holds of a tiered store
  index sequence_pages = 0;   // of one sequence
  index segments = 0;         // of one sequence
  index summary_numbers = 0;  // of one segment in one lane
  index layer_rows = 0;       // rows of a selection in one layer
  index place_rows = 0;       // rows of one place
  index ring = 0;             // places of one sequence, where choices stay in force
  index places = 0;
  index records = 0;              // of query sums, of one sequence
  index splits = 1;               // blocks that may share one row's tokens
  index tokens = 0;               // of one sequence
  index kept = 0;                 // tokens that a lane may keep; 0: none is ever given up
  index noted = 0;                // queries remembered until tokens are given up again
  index remembered = 0;           // of the last queries of a prompt that is still coming
  index provisional_queries = 0;  // of the prompts' chunks in one step
  index carried = 0;              // tokens whose attention adds up, of each query head; 0: it does not
  bool selects = false;
  bool tiered = false;      // pages lie in the host's memory, and in an arena
  bool reads_keys = false;  // to give tokens up
  bool persists = false;
  bool drifts = false;         // choices depend on drift
  bool drifts_as_one = false;  // that of all layers together

  device_sizes() = default;
  template <class Policy>
  device_sizes(const shape& with, const Policy& policy, const config& limits, index with_splits) : model(with) {
    sequences = limits.sequences;
    step_tokens = limits.step_tokens;
    decode_tokens = static_cast<index>(
        std::min<std::int64_t>(limits.step_tokens, std::int64_t{limits.sequences} * limits.draft_tokens));
    if (limits.draft_tokens > 1 && sharing() > 1) {
      const index of_draft = (limits.draft_tokens + sharing() - 1) / sharing();
      decode_shares = static_cast<index>(std::min<std::int64_t>(decode_tokens, std::int64_t{sequences} * of_draft));
    }
    pages = pages_for(limits.pool());
    sequence_pages = pages_for(limits.tokens);
    splits = with_splits;
    const layout<Policy> host(with, policy, limits);
    segments = host.most_segments;
    tokens = limits.tokens;
    kept = host.kept, noted = host.noted, carried = host.carried;
    remembered = host.remembered, provisional_queries = host.provisional_queries(limits);
    layer_rows = decltype(policy.retain)::observes ? model.kv_heads : 1;  // each KV head may have tokens of its own
    selects = Policy::selects, tiered = tiered_store<decltype(policy.store)>;
    reads_keys = retention_reads_keys<decltype(policy.retain)>();
    if constexpr (Policy::selects) {
      summary_numbers = static_cast<index>(host.segment_summary());
      layer_rows = rows_in_layer(policy.agree.per);
      persists = layout<Policy>::persists(policy);
      drifts = layout<Policy>::drifts(policy);
      drifts_as_one = drifts && policy.agree.per == scope::sequence;
      place_rows = persists ? host.selection_rows : layer_rows;
      ring = persists ? limits.undo() + 2 : 0;
      places = persists ? sequences * ring : decode_tokens;
      records = decltype(policy.ask)::sums ? limits.undo() + 1 + limits.draft_tokens : 0;
    }
  }

  /// nullptr, or the sentence that says which of these numbers would be none.
  template <class Policy>
  static const char* problem(const Policy& policy, const config& limits) {
    const std::int64_t sequences = limits.sequences;
    bool fits = limits.step_tokens + 3 * sequences <= unlimited &&
                std::int64_t{limits.undo()} + 1 + limits.draft_tokens <= unlimited - most_sharing &&
                std::int64_t{4} * limits.most_segments() + 4 <= unlimited;
    if constexpr (Policy::selects) {
      fits = fits && (!layout<Policy>::persists(policy) || sequences * (limits.undo() + 2) <= unlimited);
    }
    return fits ? nullptr
                : "device_cache: step_tokens + 3 sequences, undo_tokens + draft_tokens, 4 segments and sequences * "
                  "(undo_tokens + 2) must be less than 2^31";
  }

  index rows_in_layer(scope per) const {
    return per == scope::head ? model.heads : per == scope::kv_head ? model.kv_heads : 1;
  }
  /// Rows of attention for each token: one for each KV head, or for each head where each chooses alone.
  ZOOMR_HD index readers() const { return layer_rows == model.heads ? model.heads : model.kv_heads; }
  /// Query tokens that may share a load: as many as a block of gather_attend has room for heads.
  ZOOMR_HD index sharing() const { return model.group() < most_sharing ? most_sharing / model.group() : 1; }
  /// Heads for which rows have room, present or not.
  std::int64_t attending_heads() const {
    if (decode_shares > 0) return std::int64_t{decode_shares} * readers() * most_sharing;
    return std::int64_t{decode_tokens} * readers() * model.group();
  }
  /// Lists that shares read have room for so many runs, for each token and row.
  std::int64_t shared_run_room() const {
    return decode_shares > 0 ? bounded_product({decode_tokens, layer_rows, 2, most_runs()}) : 0;
  }
  ZOOMR_HD index most_runs() const { return 2 * segments + 2; }
  index most_closings() const { return step_tokens + 3 * sequences; }
  index most_pages() const { return pages_for(step_tokens) + 2 * sequences; }
  ZOOMR_HD std::int64_t query_numbers() const { return std::int64_t{model.heads} * model.head_dim; }
  std::int64_t pool_numbers() const { return bounded_product({model.layers, pages, page_numbers()}); }
  ZOOMR_HD std::int64_t page_numbers() const { return std::int64_t{2} * model.kv_heads * page_tokens * model.head_dim; }
};

}  // namespace v0
}  // namespace zoomr

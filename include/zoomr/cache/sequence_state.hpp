// SPDX-License-Identifier: Apache-2.0
// L6. Everything that is committed of one sequence: tokens and index change together, here and nowhere else.
#pragma once

#include <zoomr/attend/resolve.hpp>
#include <zoomr/cache/config.hpp>
#include <zoomr/cache/query_memory.hpp>
#include <zoomr/cache/selection.hpp>
#include <zoomr/cache/statistics.hpp>
#include <zoomr/cache/token_state.hpp>
#include <zoomr/core/paged_lane.hpp>
#include <zoomr/policy.hpp>
#include <zoomr/tier/block_shape.hpp>

#include <vector>  // std::vector

namespace zoomr {
inline namespace v0 {

/// Sizes that follow from a model, a policy and a config: computed once, so that `bytes` and the allocations
/// cannot disagree.
template <class Policy>
struct layout {
  using number = summary_number<decltype(Policy::summarize)>;

  shape model;
  index most_segments = 0;
  index summary_rows = 0;
  index selection_rows = 0;  // of a selection
  index query_parts = 0;     // 1 for sums, 1 for the query of the last choice
  index records = 1;         // of query memory
  index kept = 0;            // retained tokens of a lane, at most; 0: none is ever given up
  index noted = 0;           // queries remembered until tokens are given up again; 0: that is only after the prompt
  index remembered = 0;      // last queries of a prompt that is still coming, for retention at its end; 0: none
  index carried = 0;         // tokens whose attention adds up, of each query head; 0: it does not
  std::int64_t log_words = 0;
  block_shape blocks;  // of tiers

  layout() = default;
  layout(const shape& with, const Policy& policy, const config& sizes) : model(with) {
    if constexpr (!std::same_as<decltype(policy.segment), unsegmented>) most_segments = sizes.most_segments();
    if constexpr (decltype(policy.retain)::observes) {
      const index most = policy.retain.kept(sizes.tokens);
      kept = most >= sizes.tokens ? 0 : policy.zone.prompt ? sizes.tokens : most;
      if constexpr (decltype(policy.retain)::while_decoding) {
        if (kept > 0) noted = policy.retain.observed(std::min<index>(policy.retain.every, sizes.tokens));
      }
      constexpr bool accumulates = decltype(policy.retain)::accumulates;
      if (kept > 0 && accumulates) carried = sizes.tokens;
      if (kept > 0 && !accumulates && !policy.zone.prompt) {
        const auto window = std::int64_t{policy.retain.observed(sizes.tokens)} + sizes.undo();
        remembered = static_cast<index>(std::min<std::int64_t>(window, sizes.tokens));
      }
    }
    if constexpr (Policy::selects) {
      summary_rows = decltype(policy.summarize)::summary::rows;
      selection_rows = rows_of(policy.agree.per);
      query_parts = (decltype(policy.ask)::sums ? 1 : 0) + (drifts(policy) ? 1 : 0);
      records = sizes.undo() + 1;
      if (persists(policy)) {
        const std::int64_t entry = selection_log::entry_words(selection_rows, most_exceptions(policy));
        log_words = bounded_product({2, std::int64_t{sizes.undo()} + 2, entry}) + std::int64_t{4} * sizes.tokens;
      }
    }
    blocks = {model, heads_together(policy) ? model.kv_heads : 1};
  }

  static constexpr bool drifts(const Policy& policy) { return policy.refresh.drift() >= -1.0f; }

  /// Segments of a row, at most, that are not at the level of a summary.
  index most_exceptions(const Policy& policy) const {
    if constexpr (requires { policy.select.most_segments(); }) {
      const bool others_too = policy.zone.summaries == summaries_attended::candidates;
      if (!others_too) return std::min(most_segments, policy.select.most_segments());
    }
    return most_segments;
  }

  /// All KV heads of a layer read the same slots: none chooses alone, and none keeps tokens of its own.
  bool heads_together(const Policy& policy) const {
    const bool choose_together = policy.agree.per == scope::sequence || policy.agree.per == scope::layer;
    return kept == 0 && (!Policy::selects || choose_together);
  }

  /// A choice stays in force for the following tokens, rather than for its own token only.
  static constexpr bool persists(const Policy& policy) {
    return !decltype(policy.refresh)::each_token || policy.agree.per == scope::sequence;
  }

  index rows_of(scope per) const {
    switch (per) {
      case scope::sequence:
        return 1;
      case scope::layer:
        return model.layers;
      case scope::kv_head:
        return model.lanes();
      case scope::head:
        return model.layers * model.heads;
    }
    return 0;
  }

  /// Records of query memory for the tokens of one step after their prompts.
  static index draft_records(const config& sizes) {
    return static_cast<index>(
        std::min<std::int64_t>(sizes.step_tokens, std::int64_t{sizes.sequences} * sizes.draft_tokens));
  }
  /// Of the token that makes a choice which stays in force.
  index asking_parts(const Policy& policy) const { return selection_rows > 0 && persists(policy) ? 1 : 0; }
  /// Those of the prompts' chunks in one step, until it is committed.
  index provisional_queries(const config& sizes) const {
    return static_cast<index>(std::min<std::int64_t>(sizes.step_tokens, std::int64_t{sizes.sequences} * remembered));
  }
  /// Of one sequence, whose prompt may still be coming.
  byte_count observing_bytes(bool in_prompt) const {
    const auto sums = std::int64_t{2} * model.layers * model.heads * carried;
    return sums * static_cast<byte_count>(sizeof(float)) + query_memory::bytes(model, noted > 0 ? 1 : 0, noted) +
           query_memory::bytes(model, 1, in_prompt ? remembered : 0);
  }

  std::int64_t segment_summary() const { return std::int64_t{model.head_dim} * summary_rows; }  // numbers of a lane
  byte_count summary_bytes(index segments) const {
    return bounded_product({segments, model.lanes(), segment_summary(), sizeof(number)});
  }
};

/// True if tokens are given up after the token at `position`, which is not of the prompt.
template <class Policy>
bool retains_after(const Policy& policy, const config& limits, index prompt_end, index position) {
  if constexpr (decltype(policy.retain)::observes) {
    if constexpr (decltype(policy.retain)::while_decoding) {
      const bool gives_up = policy.retain.kept(limits.tokens) < limits.tokens;
      return gives_up && (position + 1 - prompt_end) % policy.retain.every == 0;
    }
  }
  return false;
}

/// The committed state of one sequence.
template <class Policy>
struct sequence_state : token_state<Policy> {
  using tokens_type = token_state<Policy>;
  using tokens_type::after_close, tokens_type::classes, tokens_type::compacted_end, tokens_type::kept_each,
      tokens_type::pages, tokens_type::segments;
  using typename tokens_type::segmenter_state;

  using number = typename layout<Policy>::number;

  buffer<number> summaries;  // [lanes, most_segments, head_dim, rows]
  std::int64_t most_kept;    // of each lane
  std::vector<index> kept;   // [lanes, most_kept]  retained positions before `compacted_end`, `kept_each` of each lane
  buffer<float> received;    // [layers, heads, sizes.carried]  attention, by slot
  buffer<float> receiving;   // [layers, heads, sizes.carried]  the same if the step is committed
  query_memory noted;        // of the tokens before tokens are given up again
  query_memory prompted;  // of the last tokens of a prompt that is still coming, in case they are observed at its end
  selection in_force;
  selection_log log;
  query_memory queries;
  statistics stats;

  sequence_state(const layout<Policy>& sizes, const config& limits)
      : summaries(std::int64_t{sizes.model.lanes()} * sizes.most_segments * sizes.segment_summary()),
        most_kept(sizes.kept),
        kept(static_cast<std::size_t>(sizes.model.lanes()) * static_cast<std::size_t>(sizes.kept)),
        received(std::int64_t{sizes.model.layers} * sizes.model.heads * sizes.carried),
        receiving(received.size()),
        noted(sizes.model, sizes.noted > 0 ? 1 : 0, std::max(1, sizes.noted)),
        prompted(sizes.model, 1, sizes.remembered),
        in_force(sizes.selection_rows, sizes.most_segments),
        log(sizes.log_words),
        queries(sizes.model, sizes.query_parts, sizes.records) {
    classes.reserve(static_cast<std::size_t>(limits.tokens));
    pages.reserve(static_cast<std::size_t>(pages_for(limits.tokens)));
    segments.reserve(static_cast<std::size_t>(sizes.most_segments));
    after_close.reserve(static_cast<std::size_t>(sizes.most_segments));
  }

  slot_map slots_of(index lane) const {
    if (kept_each == 0) return {};
    return {view<const index>(kept.data() + lane * most_kept, {kept_each}), compacted_end};
  }
  /// The table of the positions that a lane keeps, to be written.  [count]
  view<index> kept_positions(index lane, index count) { return {kept.data() + lane * most_kept, {count}}; }

  /// Bytes in use, tables at their present length.
  byte_count metadata_bytes(const layout<Policy>& sizes) const {
    const auto table = sizeof(segment) + sizeof(segmenter_state);
    return static_cast<byte_count>(classes.size() * sizeof(token_class) + pages.size() * sizeof(index) +
                                   segments.size() * table) +
           std::int64_t{sizes.model.lanes()} * kept_each * static_cast<byte_count>(sizeof(index)) +
           sizes.observing_bytes(this->in_prompt()) +
           std::int64_t{sizes.selection_rows} * static_cast<byte_count>(sizeof(selection_row) + segments.size()) +
           log.bytes() + query_memory::bytes(sizes.model, sizes.query_parts, sizes.records);
  }

  /// Bytes that one sequence may come to use; its counterpart for `kv_cache::bytes`.
  static byte_count metadata_capacity(const layout<Policy>& sizes, const config& limits) {
    const auto table = static_cast<byte_count>(sizeof(segment) + sizeof(segmenter_state));
    return limits.tokens * static_cast<byte_count>(sizeof(token_class)) +
           (pages_for(limits.tokens) + std::int64_t{sizes.model.lanes()} * sizes.kept) *
               static_cast<byte_count>(sizeof(index)) +
           bounded_product({sizes.log_words, sizeof(index)}) + sizes.most_segments * table +
           sizes.observing_bytes(true) +
           std::int64_t{sizes.selection_rows} * (static_cast<byte_count>(sizeof(selection_row)) + sizes.most_segments) +
           query_memory::bytes(sizes.model, sizes.query_parts, sizes.records);
  }

  void forget_everything() {
    tokens_type::forget_tokens();
    in_force.clear(), log.clear();
    stats = {};
  }
};

}  // namespace v0
}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// L6. Everything that is committed of one sequence: tokens and index change together, here and nowhere else.
//
// A step may write here before its commit only where nothing reads yet: slots after the committed ones, the pending
// sums, and the lists of kept positions while no KV lane is compacted. The exception is `active_selection` of a policy
// whose choices serve their own token only: it then holds what was chosen last, and is in no log.
#pragma once

#include <zoomr/attention/resolve.hpp>
#include <zoomr/cache/host/choosing/key_masses.hpp>
#include <zoomr/cache/host/choosing/rounded_index.hpp>
#include <zoomr/cache/planning/layout.hpp>
#include <zoomr/cache/statistics.hpp>
#include <zoomr/cache/tokens/token_state.hpp>

#include <algorithm>  // std::copy_n, std::max
#include <cstddef>    // std::byte, std::ptrdiff_t
#include <utility>    // std::swap
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Attention that tokens have received, by slot: what is committed, and what is if the step in progress is.
///
/// The unit is the evictor's: attention probabilities summed over queries, or what its `update_importance` makes of
/// them. Observing reads `committed` and writes `pending`. Calling `commit` once more takes it back, as long as nothing
/// has been observed since.
struct attention_sums {
  buffer<float> committed;  // [layers that store, heads, layout::carried]
  buffer<float> pending;    // the same

  explicit attention_sums(std::int64_t size) : committed(size), pending(size) {}
  void commit() { std::swap(committed, pending); }
};

/// The committed state of one sequence. Its arrays are allocated once, for the longest sequence, and serve all
/// sequences that have this id one after the other.
struct sequence_state : token_state {
  buffer<std::byte> summaries;  // [KV lanes, most_segments] of [head_dim, rows] numbers and their scale
  std::int64_t most_kept;       // of each KV lane
  std::vector<index_t>
      kept;  // [KV lanes, most_kept]  kept positions before `compacted_end`, `kept_each` of each KV lane
  attention_sums received;
  query_memory noted;           // of the tokens before tokens are evicted again
  query_memory last_queries;    // of the last prompt's last tokens, in case they are observed at its end, or at another
                                // one; or the voters' of the last tokens at any time, where a choice needs them
  question_queries questions;   // the voters' of named questions, which score from farther back
  key_masses masses;            // scores of the segments by these: a cache that only saves work
  rounded_index rounded;        // the summaries in 8 bits, of policies that shortlist: another one
  bool summary_tokens = false;  // of these: a segment has had a summary of tokens
  selection active_selection;
  selection_log log;
  query_memory queries;
  statistics stats;

  sequence_state(const layout& sizes, const any_policy& policy, const config& limits)
      : token_state(policy, limits.max_tokens, sizes.table_pages, sizes.most_segments),
        summaries(sizes.summary_bytes(sizes.most_segments)),
        most_kept(sizes.kept),
        kept(static_cast<std::size_t>(sizes.stored.kv_lanes()) * static_cast<std::size_t>(sizes.kept)),
        received(std::int64_t{sizes.stored.layers} * sizes.model.heads * sizes.carried),
        noted(sizes.model, sizes.noted > 0 ? 1 : 0, (std::max)(1, sizes.noted)),
        last_queries(sizes.asked_heads(), 1, sizes.remembered),
        questions(sizes.asked_heads(), sizes.question, limits.rollback_depth()),
        masses(sizes.heard, sizes.question, sizes.voters, sizes.most_segments),
        rounded(sizes.index_lanes, sizes.rounded_cells, sizes.most_segments),
        active_selection(sizes.selection_rows, sizes.most_segments, sizes.rounded_cells > 0),
        log(sizes.log_words),
        queries(sizes.model, sizes.query_parts, sizes.records) {
    heard = sizes.heard, turned = sizes.question;
  }

  /// Where the summaries of an index lane begin: [segments] of [head_dim, rows] numbers of `layout::number_bytes`, and
  /// of `layout::scale_bytes`.
  std::byte* summaries_of(const layout& sizes, index_t index_lane) {
    return summaries.data() + index_lane * sizes.kv_lane_summary_bytes(sizes.most_segments);
  }

  /// Notes the summaries of an index lane in 8 bits, from `first` on.
  void round_summaries(const layout& sizes, index_t index_lane, index_t first) {
    for (index_t id = first; id < segment_count(); ++id) {
      summary_tokens = summary_tokens || segments[id].split < segments[id].end;
    }
    rounded.renew(index_lane, reinterpret_cast<const float*>(summaries_of(sizes, index_lane)), first, segment_count());
  }

  /// Which slot holds which position in one KV lane; a view of `kept`, which an eviction changes.
  slot_map slots_of(index_t kv_lane) const {
    if (kept_each.committed == 0) return {};
    return {view<const index_t>(kept.data() + kv_lane * most_kept, {kept_each.committed}), compacted_end};
  }
  /// The table of the positions that a KV lane keeps, to be written.  [count]
  view<index_t> kept_positions(index_t kv_lane, index_t count) { return {kept.data() + kv_lane * most_kept, {count}}; }

  /// Bytes in use, tables at their present length. Each pass counts them.
  [[gnu::always_inline]] byte_count metadata_bytes(const layout& sizes) const {
    const auto bytes = [](index_t count, std::size_t each) { return count * static_cast<byte_count>(each); };
    return bytes(classes.size(), sizeof(token_class)) + bytes(later_prompts.size(), sizeof(token_range)) +
           bytes(moved.spans(), sizeof(position_span)) + bytes(pages.size(), sizeof(index_t)) +
           bytes(segments.size(), sizeof(segment) + sizes.state_bytes) +
           std::int64_t{sizes.stored.kv_lanes()} * kept_each.committed * static_cast<byte_count>(sizeof(index_t)) +
           sizes.observing_bytes(in_prompt()) +
           (sizes.heard > 0 ? key_masses::bytes(sizes.heard + sizes.question, sizes.voters, segment_count()) : 0) +
           std::int64_t{sizes.selection_rows} * (static_cast<byte_count>(sizeof(selection_row)) + segments.size()) +
           (sizes.rounded_cells > 0 ? sizes.selection_rows * selection::list_bytes(segment_count()) : 0) + log.bytes() +
           query_memory::bytes(sizes.model, sizes.query_parts, sizes.records);
  }

  /// Bytes that one sequence may come to use; its counterpart for `kv_cache::bytes`.
  static byte_count metadata_capacity(const layout& sizes, const config& limits) {
    const auto table = static_cast<byte_count>(sizeof(segment) + sizes.state_bytes);
    return limits.max_tokens * static_cast<byte_count>(sizeof(token_class)) +
           most_later_prompts(limits.max_tokens) * static_cast<byte_count>(sizeof(token_range)) +
           moved_positions::most(limits.max_tokens) * static_cast<byte_count>(sizeof(position_span)) +
           (sizes.table_pages + std::int64_t{sizes.stored.kv_lanes()} * sizes.kept) *
               static_cast<byte_count>(sizeof(index_t)) +
           bounded_product({sizes.log_words, sizeof(index_t)}) + sizes.most_segments * table +
           sizes.observing_bytes(true) +
           key_masses::bytes(sizes.heard + sizes.question, sizes.voters, sizes.most_segments) +
           std::int64_t{sizes.selection_rows} * selection::row_bytes(sizes.most_segments, sizes.rounded_cells > 0) +
           query_memory::bytes(sizes.model, sizes.query_parts, sizes.records);
  }

  /// Makes this new sequence what another is: tokens, index, selection, what a rollback needs and statistics. Its pages
  /// are in two tables from then on: the caller counts this in their stock.
  /// @cost  copies the summaries of its segments, remembered queries, and tables; no keys or values; no allocation
  void become(const sequence_state& other, const layout& sizes) {
    token_state::become(other);
    for (index_t lane = 0; lane < sizes.index_lanes; ++lane) {
      const byte_count offset = lane * sizes.kv_lane_summary_bytes(sizes.most_segments);
      std::copy_n(other.summaries.data() + offset, sizes.kv_lane_summary_bytes(segment_count()),
                  summaries.data() + offset);
    }
    for (index_t kv_lane = 0; kv_lane < sizes.stored.kv_lanes(); ++kv_lane) {
      const auto first = static_cast<std::ptrdiff_t>(kv_lane * most_kept);
      std::copy_n(other.kept.begin() + first, kept_each.committed, kept.begin() + first);
    }
    for (std::int64_t head = 0; sizes.carried > 0 && head < sizes.stored.layers * sizes.model.heads; ++head) {
      std::copy_n(other.received.committed.data() + head * sizes.carried, slots(),
                  received.committed.data() + head * sizes.carried);
    }
    if (sizes.noted > 0) noted.copy_from(other.noted, {prompt_end, tokens()});
    if (sizes.remembered > 0) last_queries.copy_from(other.last_queries, known_queries());
    if (!in_first_prompt()) queries.copy_from(other.queries, {prompt_end - 1, tokens()});
    questions.become(other.questions);
    masses.forget(), rounded.forget();
    for (index_t lane = 0; sizes.rounded_cells > 0 && lane < sizes.index_lanes; ++lane) round_summaries(sizes, lane, 0);
    active_selection.assign(other.active_selection);
    log = other.log;
    stats = other.stats;
  }

  /// When the sequence is closed; pages are the caller's to give back. Arrays are not cleared: nothing in them is read
  /// before a new sequence has written it.
  void forget_everything(const any_segmenter& segmenter) {
    forget_tokens(segmenter);
    active_selection.clear();
    summary_tokens = false;
    log.clear();
    questions.forget(), masses.forget(), rounded.forget();
    stats = {};
  }
};

}  // namespace zoomr::inline v0::detail

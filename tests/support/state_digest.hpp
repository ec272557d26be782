// SPDX-License-Identifier: Apache-2.0
// What a cache holds of one sequence, in a few numbers: two digests are equal if and only if (but for one chance in
// 2^64 for each part) all is the same that later steps, rollbacks and the accounts can come to see.
#pragma once

#include <zoomr/kv_cache.hpp>

#include <algorithm>    // std::max
#include <array>        // std::array
#include <cstring>      // std::memcpy
#include <string>       // std::string
#include <type_traits>  // std::has_unique_object_representations_v

namespace zoomr::inline v0 {

/// Lets tests look into a cache.
struct inspection {
  template <class T, class Placement>
  static detail::cache_core<pool_of<Placement, T>>& core(any_kv_cache<T, Placement>& of) {
    return *of.core_;
  }
  static const std::vector<index_t>& words(const detail::selection_log& log) { return log.words_; }
  static bool dropped(const detail::selection_log& log) { return log.dropped_; }
};

}  // namespace zoomr::inline v0

namespace zoomr_test {

/// A digest for each part of a sequence's state.
///
/// Left out is what the library calls work rather than state: counters of passes, choices and attended tokens, and
/// where each token chooses for itself the choice of the last one; and memory that holds nothing yet.
struct state_digest {
  enum part {
    tokens,      // classes, the end of the prompt, what can be rolled back
    segments,    // and the segmenter's states
    pages,       // the page table
    details,     // keys and values of all committed slots
    summaries,   // of all closed segments
    kept,        // positions that each KV lane has kept
    attention,   // sums that are carried
    remembered,  // queries that eviction will observe
    query_sums,  // as far as a rollback can reach
    active,      // the active selection
    log,         // of selections
    accounts,    // statistics of committed tokens, bytes in use
    free_pages,  // of the pool, for all sequences
    parts
  };
  static constexpr const char* names[parts] = {"tokens", "segments",  "pages",      "details",    "summaries",
                                               "kept",   "attention", "remembered", "query sums", "active",
                                               "log",    "accounts",  "free pages"};

  std::array<std::uint64_t, parts> of{};

  friend bool operator==(const state_digest&, const state_digest&) = default;

  /// The names of the parts in which two digests differ.
  std::string difference(const state_digest& other) const {
    std::string different;
    for (std::size_t p = 0; p < parts; ++p) {
      if (of[p] != other.of[p]) different += (different.empty() ? "" : ", ") + std::string(names[p]);
    }
    return different;
  }
};

/// Makes the digest of one sequence of a cache.
template <class Policy, class T>
class digesting {
 public:
  digesting(zoomr::kv_cache<Policy, T>& cache, zoomr::sequence seq)
      : core_(zoomr::inspection::core(cache)), state_(core_.states[static_cast<std::size_t>(seq.id)]) {}

  /// Summaries that a failed commit has left to be renewed are renewed. Pages of a tiered placement are reached, so
  /// that others may lie on the device afterwards.
  /// @throws zoomr::error(storage) if these do not come
  state_digest made() {
    zoomr::detail::renew_summaries(core_, state_);
    tokens(), segments(), pages(), details(), summaries(), eviction(), query_sums(), selections();
    const zoomr::memory_use use = core_.bytes_in_use(state_);
    at_ = state_digest::accounts;
    add(state_.stats.prompt_tokens), add(state_.stats.tokens);
    add(use.details), add(use.summaries), add(use.metadata);
    at_ = state_digest::free_pages;
    add(core_.pool.free_pages());
    return made_;
  }

 private:
  using index_t = zoomr::index_t;

  template <class Value>
  void add(const Value& value) {
    static_assert(std::has_unique_object_representations_v<Value> || std::is_floating_point_v<Value>);
    add_all(&value, 1);
  }
  template <class Value>
  void add_all(const Value* values, std::int64_t count) {
    const auto* bytes = reinterpret_cast<const char*>(values);
    std::uint64_t& sum = made_.of[at_];
    for (std::int64_t left = count * static_cast<std::int64_t>(sizeof(Value)); left > 0; left -= 8, bytes += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes, left < 8 ? static_cast<std::size_t>(left) : 8);
      sum = (sum ^ word ^ static_cast<std::uint64_t>(left) << 56) * 0x9e3779b97f4a7c15u;
      sum ^= sum >> 29;
    }
  }
  void add_state(const std::byte* state) {
    typename decltype(Policy::segment)::state segmenter;
    std::memcpy(&segmenter, state, sizeof segmenter);
    if constexpr (requires { segmenter.cue_begin; }) {
      add(segmenter.begin), add(segmenter.cue_begin), add(segmenter.cue_end), add(segmenter.split);
      add(segmenter.in), add(segmenter.generated);
    } else if constexpr (!std::is_empty_v<decltype(segmenter)>) {
      add(segmenter);
    }
  }

  void tokens() {
    at_ = state_digest::tokens;
    add(state_.open), add(state_.prompt_end), add(state_.rollback_floor), add(state_.observed_end);
    add(state_.kept_each.pending), add(state_.freed_pages);
    for (const zoomr::token_range& later : state_.later_prompts) add(later.first), add(later.last);
    for (const zoomr::position_span& span : state_.moved.map().spans) add(span.first), add(span.offset);
    add(state_.tokens()), add_all(state_.classes.data(), state_.tokens());
  }
  void segments() {
    at_ = state_digest::segments;
    add(state_.segment_count()), add_all(state_.segments.data(), state_.segment_count());
    add_state(state_.segmenting.data());
    for (std::size_t at = 0; at < state_.after_close.size(); at += state_.segmenting.size()) {
      add_state(state_.after_close.data() + at);
    }
  }
  void pages() {
    at_ = state_digest::pages;
    const auto count = static_cast<index_t>(state_.pages.size());
    add(count), add_all(state_.pages.data(), count);
  }
  void details() {
    at_ = state_digest::details;
    const zoomr::shape& of_model = core_.sizes.model;
    for (index_t kv_lane = 0; kv_lane < of_model.kv_lanes(); ++kv_lane) {
      const auto keys = core_.kv_lane(state_, kv_lane / of_model.kv_heads, kv_lane % of_model.kv_heads);
      for (index_t slot = 0; slot < state_.slots(); ++slot) {
        if (state_.pages[static_cast<std::size_t>(slot / zoomr::page_tokens)] < 0) continue;
        const T* key = keys.key(slot);
        add_all(key, of_model.head_dim), add_all(keys.value_of(key, slot), of_model.value_width());
      }
    }
  }
  void summaries() {
    at_ = state_digest::summaries;
    const bool observes = core_.policy.evict.observes;
    if (!core_.policy.selects || (observes && state_.in_first_prompt())) return;  // none are made, or not yet
    for (index_t kv_lane = 0; kv_lane < core_.sizes.model.kv_lanes(); ++kv_lane) {
      add_all(state_.summaries_of(core_.sizes, kv_lane), core_.sizes.kv_lane_summary_bytes(state_.segment_count()));
    }
  }

  // The last time that tokens were evicted, or would have been.
  index_t last_time() const {
    if (state_.in_first_prompt()) return core_.policy.zone.prompt ? 0 : state_.tokens();
    if (state_.in_later_prompt()) return state_.tokens();
    const index_t from = state_.last_prompt_end();
    if (!core_.policy.evict.while_decoding) return from;
    return state_.tokens() - (state_.tokens() - from) % core_.policy.evict.every;
  }
  void eviction() {
    const zoomr::shape& of_model = core_.sizes.model;
    at_ = state_digest::kept;
    add(state_.kept_each.committed), add(state_.compacted_end);
    for (index_t kv_lane = 0; kv_lane < of_model.kv_lanes(); ++kv_lane) {
      add_all(state_.kept_positions(kv_lane, state_.kept_each.committed).data(), state_.kept_each.committed);
    }
    at_ = state_digest::attention;
    for (index_t row = 0; core_.sizes.carried > 0 && row < of_model.layers * of_model.heads; ++row) {
      add_all(state_.received.committed.data() + std::int64_t{row} * core_.sizes.carried, state_.slot_end(last_time()));
    }
    at_ = state_digest::remembered;
    if (core_.sizes.remembered > 0 && state_.in_prompt()) {
      add(state_.queries_from);
      add_records(state_.last_queries, state_.queries_from, 0, 1);
    }
    if (core_.sizes.noted == 0 || state_.in_prompt()) return;
    const index_t next_time = last_time() + core_.policy.evict.every;
    add_records(state_.noted, std::max(last_time(), next_time - core_.sizes.noted), 0, 1);
  }
  void query_sums() {
    at_ = state_digest::query_sums;
    const index_t parts = core_.sizes.query_parts;
    if (parts == 0 || state_.in_prompt()) return;
    const index_t first = std::max(state_.rollback_floor - 1, state_.tokens() - core_.sizes.records);
    const index_t from = state_.last_prompt_end();
    add_records(state_.queries, std::max(first, from), 0, parts);
  }
  void add_records(zoomr::detail::query_memory& of, index_t first, index_t part, index_t parts) {
    for (index_t position = first; position < state_.tokens(); ++position) add_record(of, position, part, parts);
  }
  void add_record(zoomr::detail::query_memory& of, index_t position, index_t part, index_t parts) {
    const zoomr::shape of_model = &of == &state_.last_queries ? core_.sizes.asked_heads() : core_.sizes.model;
    for (; part < parts; ++part) {
      add_all(of.at(position, part, 0).data(), std::int64_t{of_model.layers} * of_model.heads * of_model.head_dim);
    }
  }

  void selections() {
    at_ = state_digest::active;
    if (!core_.policy.persists()) return;
    for (index_t r = 0; r < state_.active_selection.rows(); ++r) {
      const zoomr::selection_row& row = state_.active_selection.row(r);
      add(row.cut_segment), add(row.cut_tokens), add(row.levels.size());
      add_all(row.levels.data(), row.levels.size());
    }
    at_ = state_digest::log;
    const std::vector<index_t>& words = zoomr::inspection::words(state_.log);
    add(zoomr::inspection::dropped(state_.log)), add(words.size());
    add_all(words.data(), static_cast<std::int64_t>(words.size()));
  }

  zoomr::detail::cache_core<zoomr::pool_of<decltype(Policy::placement), T>>& core_;
  zoomr::detail::sequence_state& state_;
  state_digest made_;
  std::size_t at_ = 0;
};

template <class Policy, class T>
state_digest digest_of(zoomr::kv_cache<Policy, T>& cache, zoomr::sequence seq) {
  return digesting<Policy, T>(cache, seq).made();
}

}  // namespace zoomr_test

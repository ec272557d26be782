// SPDX-License-Identifier: Apache-2.0
// L6. What a saved sequence has of a sequence's state: its counts, and which queries and sums. What follows from these
// is not saved: segments and the segmenter's states follow from the classes of tokens, summaries from the keys, the
// active selection from the log.
#pragma once

#include <zoomr/cache/host/sequence_state.hpp>
#include <zoomr/core/token_range.hpp>
#include <zoomr/paging/stored_rows.hpp>

#include <algorithm>  // std::max, std::min

namespace zoomr::inline v0::detail {

/// Numbers of fixed size, as a section of the file has them. Names are those of the state.
struct saved_counts {
  index_t tokens = 0;
  index_t prompt_end = -1;
  index_t kept = 0;
  index_t compacted_end = 0;
  index_t rollback_floor = 0;
  index_t observed_end = 0;
  index_t freed_pages = 0;
  index_t unclassified = 0;  // 1: some tokens came without a table of classes
  index_t evictions_from = 0;
  statistics stats;

  /// visit(number) for each, in the order of the file.
  template <class Self, class Visit>
  static void each(Self& self, Visit visit) {
    visit(self.tokens);
    visit(self.prompt_end);
    visit(self.kept);
    visit(self.compacted_end);
    visit(self.rollback_floor);
    visit(self.observed_end);
    visit(self.freed_pages);
    visit(self.unclassified);
    visit(self.evictions_from);
    each_counter(self.stats, visit);
  }
  template <class Stats, class Visit>
  static void each_counter(Stats& stats, Visit visit) {
    visit(stats.prompt_tokens);
    visit(stats.tokens);
    visit(stats.passes);
    visit(stats.attended);
    visit(stats.refreshes);
    visit(stats.zooms);
    visit(stats.chosen);
    visit(stats.agreeability_sum);
    visit(stats.agreeability_count);
    visit(stats.entropy_sum);
    visit(stats.entropy_count);
    visit(stats.captured_sum);
    visit(stats.captured_count);
    visit(stats.device_peak);
  }
};

/// Whether a file has this page of a sequence: what was given back, or can be, is not in it.
template <class Core>
bool holds_page(Core& core, const sequence_state& state, index_t page) {
  if (core.limits.logits.window > 0) return page >= state.freed_pages;
  return core.kv_lane(state, 0, 0).holds(page * page_tokens);
}

/// What a sequence of this length remembers of queries and attention, where its policy needs any. Positions; a range
/// that is empty is at the sequence's end, or at that of its prompt.
struct remembered_parts {
  index_t summed = 0;      // slots whose attention is carried
  token_range prompted{};  // queries of the prompt that its end may need, or last ones that choices hear
  token_range noted{};     // queries that eviction will observe while decoding
  token_range records{};   // records of query memory; of the one before the last prompt's end, the last part alone
};

/// Tokens when some were last evicted, or would have been: what is summed and noted counts from there.
inline index_t last_eviction_time(const any_policy& policy, const token_state& state) {
  const index_t tokens = state.tokens();
  if (state.in_first_prompt()) return policy.zone.prompt ? 0 : tokens;
  if (!policy.evict.while_decoding) return (std::min)(state.last_prompt_end(), tokens);
  return state.last_eviction(policy.evict.every);
}

/// @pre  counts, classes and what is kept of tokens are those of the state; the policy's eviction has its `every`
inline remembered_parts remembered_of(const any_policy& policy, const layout& sizes, const token_state& state) {
  const index_t tokens = state.tokens();
  const any_evictor& evict = policy.evict;
  remembered_parts parts;
  const index_t last_time = last_eviction_time(policy, state);
  if (sizes.carried > 0) parts.summed = state.slot_end(last_time);
  parts.prompted = state.known_queries();
  parts.prompted.first = (std::max)(parts.prompted.first, parts.prompted.last - sizes.remembered);
  parts.noted = parts.records = {tokens, tokens};
  if (state.in_prompt()) return parts;
  if (sizes.noted > 0) {  // the ring may hold fewer than will be observed, where the sequence is to end before
    const std::int64_t wanted = std::int64_t{last_time} + evict.every - evict.observed(evict.every);
    const std::int64_t first = (std::max)({wanted, std::int64_t{last_time}, std::int64_t{tokens} - sizes.noted});
    parts.noted.first = static_cast<index_t>(std::min<std::int64_t>(first, tokens));
  }
  if (sizes.query_parts > 0) {
    const index_t reached = (std::min)(state.rollback_floor, tokens) - 1;
    parts.records.first = (std::max)({reached, tokens - sizes.records, state.last_prompt_end() - 1});
  }
  return parts;
}

/// Parts of records that are saved: all of each, of the one before the prompt's end none.
inline std::int64_t saved_record_parts(const layout& sizes, const token_state& state, token_range records) {
  if (records.size() == 0) return 0;
  const bool before = records.first < state.last_prompt_end();
  return (std::int64_t{records.size()} - (before ? 1 : 0)) * sizes.query_parts;
}

/// Adds up the length of a text.
class text_length final : public text_taker {
 public:
  void take(std::string_view piece) override { bytes += static_cast<byte_count>(piece.size()); }
  byte_count bytes = 0;
};

/// Bytes of the rows of one KV lane in a page: keys and values of `rows` tokens, with their scales where rows have any.
template <class T>
byte_count saved_row_bytes(const shape& model, index_t rows) {
  const auto bytes = [](index_t width) {
    const auto scale = static_cast<byte_count>(scales_rows<T> && width > 0 ? sizeof(float) : 0);
    return stored_size<T>(width) * static_cast<byte_count>(sizeof(T)) + scale;
  };
  return rows * (bytes(model.head_dim) + bytes(model.stored_value_width()));
}

/// The rows of some tokens in one KV lane, of which the first is that of a page: keys, then values unless they are in
/// keys.
/// @param key    key(slot) of `kv_lane`, to read or to write
/// @param visit  visit(row, width, stride, side_by_side): row(t) is where that of token t is, `stride` what scale_of
/// is
///               told, if rows have scales
template <class Lane, class Key, class Visit>
void each_saved_row(const shape& model, const Lane& kv_lane, index_t slot, Key key, Visit visit) {
  const kv_rows& rows = kv_lane.rows;
  visit([&](index_t t) { return key(slot + t); }, rows.key_width, rows.key_stride, keys_side_by_side(kv_lane));
  if (model.values_in_keys) return;
  visit([&](index_t t) { return kv_lane.value_of(key(slot + t), slot + t); }, rows.value_width, rows.value_stride,
        values_side_by_side(kv_lane));
}

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L6. Which queries and sums a saved sequence has, or one that moves to a device.
#pragma once

#include <zoomr/cache/host/sequence_state.hpp>
#include <zoomr/core/token_range.hpp>

#include <algorithm>  // std::max, std::min

namespace zoomr::inline v0::detail {

/// What a sequence of this length remembers of queries and attention, where its policy needs any. Positions; a range
/// that is empty is at the sequence's end, or at that of its prompt.
struct remembered_parts {
  index_t summed = 0;      // slots whose attention is carried
  token_range prompted{};  // queries of the prompt that its end may need, or last ones that choices need
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
    const std::int64_t begin = std::int64_t{last_time} + evict.every - evict.observed(evict.every);
    const std::int64_t first = (std::max)({begin, std::int64_t{last_time}, std::int64_t{tokens} - sizes.noted});
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

}  // namespace zoomr::inline v0::detail

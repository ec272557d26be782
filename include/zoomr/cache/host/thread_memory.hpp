// SPDX-License-Identifier: Apache-2.0
// L6. What each thread that works on a call has for itself, and what it counts. The cache has one for each of
// `config.threads`.
#pragma once

#include <zoomr/cache/host/attending/prompt_attention.hpp>
#include <zoomr/cache/host/choosing/chooser.hpp>
#include <zoomr/cache/host/eviction/observation.hpp>
#include <zoomr/core/token_range.hpp>

#include <algorithm>  // std::max
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// What one query head has read and made in one layer for one token. Threads write theirs apart; they are added to the
/// statistics in the order of tokens and heads, so that sums of floats do not depend on threads.
struct head_counts {
  std::int64_t attended = 0;        // slots
  std::int64_t kv_lane_tokens = 0;  // different ones of the KV head, with its first query head
  bool chosen = false;              // it has made its row
  choice_counts choice;
  double captured = 0;  // share of full attention's mass, with config.audit
};

/// Ranges as `resolve` needs them: details and summary of each segment, and two zones.
inline std::size_t most_ranges(const layout& sizes) { return 2 * static_cast<std::size_t>(sizes.most_segments) + 2; }

/// The same of one rank's slots: each deal parts a range. None where slots are not dealt out.
inline std::size_t most_own_ranges(const layout& sizes) {
  return sizes.most_deals > 0 ? most_ranges(sizes) + static_cast<std::size_t>(sizes.most_deals) : 0;
}

/// Working memory of one thread.
template <class T>
struct thread_memory {
  thread_memory(const layout& sizes, const any_policy& policy, index_t observed_tokens)
      : observed(sizes.model, observed_tokens, policy.evict.reads_keys),
        ranges(most_ranges(sizes)),
        own_ranges(most_own_ranges(sizes)),
        joined((std::max)(ranges.size(), own_ranges.size()) * static_cast<std::size_t>(sizes.model.group())),
        tile(sizes.model) {
    if (policy.selects && policy.score.reads_keys) {
      keys = key_memory(sizes.model, scored_slots(sizes, policy), sizes.most_segments);
    }
  }
  static byte_count bytes(const layout& sizes, const any_policy& policy, index_t observed_tokens) {
    return observation::bytes(sizes.model, observed_tokens, policy.evict.reads_keys) +
           static_cast<byte_count>((most_ranges(sizes) + most_own_ranges(sizes)) * sizeof(token_range)) +
           static_cast<byte_count>((std::max)(most_ranges(sizes), most_own_ranges(sizes)) * sizeof(token_range)) *
               sizes.model.group() +
           prompt_tile::bytes(sizes.model) +
           (policy.selects && policy.score.reads_keys
                ? key_memory::bytes(sizes.model, scored_slots(sizes, policy), sizes.most_segments)
                : 0);
  }
  static index_t scored_slots(const layout& sizes, const any_policy& policy) {
    return key_memory::slots_for(sizes.most_slots, policy.segment.longest);
  }

  observation observed;
  std::vector<token_range> ranges;      // of one query
  std::vector<token_range> own_ranges;  // of these what is this rank's
  std::vector<token_range> joined;      // of the query heads of one KV head
  prompt_tile tile;                     // of a prompt's attention
  key_memory keys;                      // if segments are scored by their keys
};

}  // namespace zoomr::inline v0::detail

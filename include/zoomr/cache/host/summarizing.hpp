// SPDX-License-Identifier: Apache-2.0
// L6. Summaries of segments, from the keys of their cues as they are stored: rounded to the cache's type and times the
// key's scale, so that a summary made again from the same slots has the same bits.
//
// Called by commit: for the segments that it has closed, or for all if the KV lanes hold other tokens than before; and
// by a step that renews what a failed commit has left.
#pragma once

#include <zoomr/cache/host/sequence_state.hpp>
#include <zoomr/paging/stored_rows.hpp>

#include <algorithm>  // std::fill, std::max, std::min
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Makes summaries; working memory for one cue. A summary of one KV lane is [head_dim, rows]: floats while it is made,
/// then numbers of `any_summarizer::number_bytes` at [segment] of the KV lane's index.
class segment_summarizer {
 public:
  segment_summarizer(const layout& sizes, const any_policy& policy, const config& limits, const donor_table& donors,
                     const anchor_table& anchors)
      : sizes_(sizes),
        summarize_(policy.summarize),
        limits_(limits),
        donors_(donors),
        anchors_(anchors),
        keys_(static_cast<std::size_t>(keys_at_once(sizes, policy, limits)) *
              static_cast<std::size_t>(sizes.model.head_dim)),
        work_(static_cast<std::size_t>(longest(sizes, policy, limits))),
        order_(work_.size()),
        cells_(static_cast<std::size_t>(sizes.segment_summary())) {}

  static byte_count bytes(const layout& sizes, const any_policy& policy, const config& limits) {
    const byte_count numbers = bounded_product({keys_at_once(sizes, policy, limits), sizes.model.head_dim}) +
                               byte_count{2} * longest(sizes, policy, limits) + sizes.segment_summary();
    return bounded_product({numbers, sizeof(float)});
  }

  /// Makes those of the segments from `first` on, of all KV lanes that have an index. Of a cue the tokens that the KV
  /// lane still holds count; if there are none, a summarizer that needs all keys at once is not called, and the summary
  /// is NaN.
  /// @throws error(storage) if pages do not come
  /// @cost   reads the keys of the cues once
  template <class Pool>
  void make(Pool& pool, sequence_state& state, index_t first) {
    if (sizes_.summary_rows > 0) make_all(pool, state, first);
  }

 private:
  template <class Pool>
  void make_all(Pool& pool, sequence_state& state, index_t first) {
    for (index_t l = 0; l < sizes_.stored.kv_lanes(); ++l) {
      const index_t index_lane = anchors_.index_lane(l);
      if (index_lane < 0) continue;
      const index_t stored = l / sizes_.model.kv_heads, kv_head = l % sizes_.model.kv_heads;
      const float scale = limits_.key_scale.at(donors_.layer_of(stored), kv_head);
      const auto kv_lane = pool.kv_lane(stored, kv_head, view<const index_t>(state.pages));
      const slot_map slots = state.slots_of(l);
      for (index_t id = first; id < state.segment_count(); ++id) {
        const segment& s = state.segments[id];
        make_one(kv_lane, scale, {slots.slot_of(s.cue_begin), slots.slot_of(s.cue_end)});
        const view<float, 2> cells(cells_.data(), {sizes_.model.head_dim, sizes_.summary_rows});
        summarize_.store(cells, state.summaries_of(sizes_, index_lane) + sizes_.kv_lane_summary_bytes(id));
      }
      if (sizes_.rounded_cells > 0) state.round_summaries(sizes_, index_lane, first);
    }
  }
  // Only a summarizer that sees all keys at once needs working memory for more than one.
  static index_t longest(const layout& sizes, const any_policy& policy, const config& limits) {
    return sizes.summary_rows > 0 && policy.summarize.at_once ? (std::min)(policy.segment.longest, limits.max_tokens)
                                                              : 0;
  }
  static index_t keys_at_once(const layout& sizes, const any_policy& policy, const config& limits) {
    return sizes.summary_rows > 0 ? (std::max)(1, longest(sizes, policy, limits)) : 0;
  }

  // Into `cells_`.
  // @param scale  of the lane's keys
  // @param cue    slots, the last exclusive
  template <class Lane>
  void make_one(const Lane& kv_lane, float scale, token_range cue) {
    const index_t dims = sizes_.model.head_dim;
    const view<float, 2> cells(cells_.data(), {dims, sizes_.summary_rows});
    const auto copy = [&](index_t slot, float* to) { read_row(kv_lane.key(slot), slot, scale, {to, {dims}}); };
    if (summarize_.at_once) {
      const view<float, 2> keys(keys_.data(), {cue.size(), dims});
      for (index_t t = 0; t < cue.size(); ++t) copy(cue.first + t, keys[t].data());
      std::fill(cells_.begin(), cells_.end(), not_a_number);
      if (cue.size() == 0) return;
      summarize_.make(keys, view<index_t>(order_).slice(0, cue.size()), view<float>(work_).slice(0, cue.size()), cells);
    } else {
      summarize_.open(cells);
      for (index_t slot = cue.first; slot < cue.last; ++slot) {
        copy(slot, keys_.data());
        summarize_.fold(cells, keys_.data());
      }
      summarize_.close(cells, cue.size());
    }
  }

  layout sizes_;
  const any_summarizer& summarize_;
  config limits_;  // for its scales
  const donor_table& donors_;
  const anchor_table& anchors_;
  std::vector<float> keys_;     // [longest cue, head_dim], or one key
  std::vector<float> work_;     // [longest cue]
  std::vector<index_t> order_;  // [longest cue]
  std::vector<float> cells_;    // [head_dim, rows]
};

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L6. Summaries of segments, from the keys of their cues as they are stored.
#pragma once

#include <zoomr/cache/host/sequence_state.hpp>

#include <algorithm>  // std::fill, std::min
#include <vector>     // std::vector

namespace zoomr {
inline namespace v0 {
namespace detail {

/// Makes summaries; working memory for one cue.
template <class Policy>
class segment_summarizer {
 public:
  segment_summarizer(const layout<Policy>& sizes, const Policy& with, const config& given)
      : sizes_(sizes),
        policy_(with),
        given_(given),
        keys_(longest(with, given) * static_cast<std::size_t>(sizes.model.head_dim)),
        work_(longest(with, given)),
        order_(work_.size()),
        made_(work_.empty() ? 0 : static_cast<std::size_t>(sizes.segment_summary())) {}

  static byte_count bytes(const layout<Policy>& sizes, const Policy& with, const config& given) {
    const auto cue = static_cast<std::int64_t>(longest(with, given));
    return bounded_product({cue, sizes.model.head_dim + byte_count{2}, sizeof(float)}) +
           bounded_product({cue > 0 ? sizes.segment_summary() : 0, sizeof(float)});
  }

  /// Those of the segments from `first` on, of all KV lanes.
  /// @throws error(storage) if pages do not come
  /// @cost   reads the keys of the cues once
  template <class Pool>
  void make(Pool& pool, sequence_state<Policy>& state, index_t first) {
    if (sizes_.summary_rows == 0) return;
    for (index_t l = 0; l < sizes_.model.kv_lanes(); ++l) {
      const auto kv_lane =
          pool.kv_lane(l / sizes_.model.kv_heads, l % sizes_.model.kv_heads, view<const index_t>(state.pages));
      const slot_map slots = state.slots_of(l);
      for (index_t id = first; id < state.segment_count(); ++id) {
        const segment& s = state.segments[static_cast<std::size_t>(id)];
        auto* out = state.summaries.data() + (std::int64_t{l} * sizes_.most_segments + id) * sizes_.segment_summary();
        make_one(kv_lane, {slots.slot_of(s.cue_begin), slots.slot_of(s.cue_end)}, out);
      }
    }
  }

 private:
  using summary = typename decltype(Policy::summarize)::summary;
  using number = typename layout<Policy>::number;

  // Only a summarizer that sees all keys at once needs working memory.
  static std::size_t longest(const Policy& with, const config& given) {
    if (!block_summarizer<decltype(Policy::summarize)>) return 0;
    return static_cast<std::size_t>(std::min<index_t>(with.segment.longest, given.max_tokens));
  }

  // out: [head_dim, rows]
  template <class Lane>
  void make_one(const Lane& kv_lane, token_range cue, number* out) {
    constexpr index_t rows = summary::rows;
    const auto keep = [&](index_t d, index_t r, float value) {
      out[d * rows + r] = stored_number<summary, number>(r, value);
    };
    if constexpr (block_summarizer<decltype(Policy::summarize)>) {
      const view<float, 2> keys(keys_.data(), {cue.size(), sizes_.model.head_dim});
      for (index_t t = 0; t < cue.size(); ++t) {
        for (index_t d = 0; d < sizes_.model.head_dim; ++d) keys(t, d) = given_.key_of(kv_lane.key(cue.first + t)[d]);
      }
      const view<float, 2> made(made_.data(), {sizes_.model.head_dim, rows});
      std::fill(made_.begin(), made_.end(), not_a_number);
      if (cue.size() > 0) {
        policy_.summarize.make(keys, view<index_t>(order_).slice(0, cue.size()),
                               view<float>(work_).slice(0, cue.size()), made);
      }
      for (index_t d = 0; d < sizes_.model.head_dim; ++d) {
        for (index_t r = 0; r < rows; ++r) keep(d, r, made(d, r));
      }
    } else {
      for (index_t d = 0; d < sizes_.model.head_dim; ++d) {
        cells<rows> c = policy_.summarize.open();
        for (index_t slot = cue.first; slot < cue.last; ++slot) {
          policy_.summarize.fold(c, given_.key_of(kv_lane.key(slot)[d]));
        }
        policy_.summarize.close(c, cue.size());
        for (index_t r = 0; r < rows; ++r) keep(d, r, c.row[r]);
      }
    }
  }

  layout<Policy> sizes_;
  Policy policy_;
  config given_;                // for its scales
  std::vector<float> keys_;     // [longest cue, head_dim]
  std::vector<float> work_;     // [longest cue]
  std::vector<index_t> order_;  // [longest cue]
  std::vector<float> made_;     // [head_dim, rows]
};

}  // namespace detail
}  // namespace v0
}  // namespace zoomr

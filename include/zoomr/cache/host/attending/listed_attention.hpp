// SPDX-License-Identifier: Apache-2.0
// L6. One item's attention in one layer to the tokens that an engine lists: of models that choose them by an index of
// their own. Each query attends by itself, in prompts too; slots are added as in layer_attention.hpp, so that a list of
// all tokens gives the bits of `attend`.
#pragma once

#include <zoomr/cache/host/attending/item_attention.hpp>

#include <algorithm>  // std::min
#include <string>     // std::to_string
#include <utility>    // std::move

namespace zoomr::inline v0::detail {

template <class Pool>
class listed_attention : item_attention<Pool> {
  using base = item_attention<Pool>;
  using base::begin, base::core_, base::counts, base::finish, base::gather, base::item_, base::layer_, base::packed,
      base::second_, base::token_at;

 public:
  /// @param listed  [packed tokens, 1 or KV heads, most]
  listed_attention(cache_core<Pool>& core, planned_item& item, index_t layer, bool second_pass,
                   view<const float, 3> queries, view<const index_t, 3> listed, view<float, 3> out, view<float, 2> lse)
      : base(core, item, layer, second_pass, queries, out, lse), listed_(listed) {}

  /// @throws precondition_error if some list is not of ascending positions that its query sees, and -1 behind them
  void expect() {
    for (index_t t = first(); t < item_.tokens; ++t) {
      const token_range seen = token_at(t).seen_slots(0);
      for (index_t list = 0; list < listed_.extent(1); ++list) {
        index_t least = seen.first;
        for (const index_t position : listed_[packed(t)][list]) {
          ZOOMR_EXPECTS(position == -1 || (position >= least && position < seen.last),
                        "attend_listed: position " + std::to_string(position) + " is listed for the token at " +
                            std::to_string(item_.first + t) + ": wanted ascending ones from " + std::to_string(least) +
                            " to " + std::to_string(seen.last - 1) + ", and -1 behind the last");
          least = position == -1 ? seen.last : position + 1;
        }
      }
    }
  }

  /// @pre   as `expect`
  /// @cost  no allocation; key and value read of each listed token and KV head
  void attend() {
    const index_t kv_heads = core_.sizes.model.kv_heads, tokens = item_.tokens - first();
    core_.pool.begin_layer(core_.donors.stored(layer_));
    const executor workers =
        core_.threads_for(std::int64_t{tokens} * (std::min)(listed_.extent(2), token_at(0).slots()));
    for_each_piece(workers, tokens * kv_heads,
                   [&](index_t piece, index_t) { attend(first() + piece / kv_heads, piece % kv_heads); });
    for (index_t t = first(); !item_.prompt && t < item_.tokens; ++t) {
      add_counts(token_at(t), counts(t));
      if (core_.trace != nullptr) record(t);
    }
  }

 private:
  static constexpr index_t most_ranges = 256;

  // Token of the item, of this pass.
  index_t first() const { return second_ ? item_.tokens - 1 : 0; }

  void attend(index_t t, index_t kv_head) {
    const index_t group = core_.sizes.model.group();
    const token_range tokens{t, t + 1}, heads{kv_head * group, (kv_head + 1) * group};
    const view<const index_t> listed = list_of(t, kv_head);
    token_range memory[std::size_t{most_ranges}];
    range_list ranges{view<token_range>(memory, {most_ranges})};
    index_t count = 0;
    begin(tokens, heads);
    const auto attend_ranges = [&] {
      gather(core_.state_of(item_), tokens, heads, ranges.ranges(), {0, unlimited});
      count += ranges.tokens();
      ranges = range_list{view<token_range>(memory, {most_ranges})};
    };
    for (index_t i = 0; i < listed.size() && listed[i] >= 0; ++i) {
      if (ranges.ranges().size() == most_ranges) attend_ranges();
      ranges.add({listed[i], listed[i] + 1});
    }
    attend_ranges();
    if (item_.prompt) {
      for (index_t head = heads.first; head < heads.last; ++head) {
        finish(core_.heads.join(t, head), packed(t), head);
      }
      return;
    }
    const view<head_counts> counted = counts(t);
    for (index_t head = heads.first; head < heads.last; ++head) {
      counted[head] = head_counts{};
      finish(token_at(t), kv_head, head, counted[head]);
    }
    counted[heads.first].attended += std::int64_t{count} * group;
    counted[heads.first].kv_lane_tokens += count;
  }

  // For the caller's trace. It allocates.
  void record(index_t t) const {
    for (index_t head = 0; head < core_.sizes.model.heads; ++head) {
      attended_record entry{item_.seq, item_.first + t, layer_, head, second_, {}};
      for (const index_t position : list_of(t, head / core_.sizes.model.group())) {
        if (position >= 0) entry.positions.push_back(position);
      }
      core_.trace->push_back(std::move(entry));
    }
  }
  view<const index_t> list_of(index_t t, index_t kv_head) const {
    return listed_[packed(t)][listed_.extent(1) == 1 ? 0 : kv_head];
  }

  view<const index_t, 3> listed_;
};

}  // namespace zoomr::inline v0::detail

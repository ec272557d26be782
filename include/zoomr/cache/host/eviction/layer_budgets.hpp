// SPDX-License-Identifier: Apache-2.0
// L6. Which tokens the KV heads of a layer keep where they share one budget: each its fewest, then those of the highest
// importance, whichever KV head they are of.
#pragma once

#include <zoomr/cache/planning/layout.hpp>

#include <algorithm>  // std::fill_n, std::max_element, std::min
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Working memory of one eviction; none where KV heads evict alone. For each layer that stores: `lane` of each KV head,
/// then `choose`.
class layer_budgets {
 public:
  /// The tokens of one KV lane, in ascending order: `first` are kept in any case, then come those that compete up to
  /// `scored`, and those after them are kept too.
  struct lane_tokens {
    index_t begin = 0;  // slot of the first
    index_t count = 0;
    index_t first = 0;
    index_t scored = 0;
  };

  layer_budgets(const layout& sizes, const any_policy& policy, index_t tokens) {
    if (!used(sizes, policy)) return;
    kv_heads_ = sizes.model.kv_heads, tokens_ = tokens, most_ = sizes.kept;
    const auto of_layer = static_cast<std::size_t>(kv_heads_) * static_cast<std::size_t>(tokens);
    importance_.resize(of_layer), order_.resize(of_layer), stays_.resize(of_layer);
    lanes_.resize(static_cast<std::size_t>(kv_heads_));
    counts_.resize(static_cast<std::size_t>(sizes.stored.kv_lanes()));
    slots_.resize(counts_.size() * static_cast<std::size_t>(most_));
  }
  static byte_count bytes(const layout& sizes, const any_policy& policy, index_t tokens) {
    if (!used(sizes, policy)) return 0;
    const auto of_token = static_cast<byte_count>(sizeof(float) + sizeof(index_t) + sizeof(char));
    return bounded_product({sizes.model.kv_heads, tokens, of_token}) +
           sizes.model.kv_heads * static_cast<byte_count>(sizeof(lane_tokens)) +
           bounded_product({sizes.stored.kv_lanes(), std::int64_t{sizes.kept} + 1, sizeof(index_t)});
  }

  /// The tokens of a KV head, and room for their importance.  [tokens.scored]
  view<float> lane(index_t kv_head, const lane_tokens& tokens) {
    lanes_[static_cast<std::size_t>(kv_head)] = tokens;
    return {importance_.data() + std::int64_t{kv_head} * tokens_, {tokens.scored}};
  }
  /// @param stored  number of the layer among those that store
  /// @param fewest  tokens that each KV head keeps
  /// @param all     that they keep together; all there are, if these are fewer
  /// @cost  O(n log n) for n tokens of the layer
  void choose(index_t stored, index_t fewest, std::int64_t all) {
    std::int64_t left = all;
    for (index_t h = 0; h < kv_heads_; ++h) {
      const lane_tokens& own = lanes_[static_cast<std::size_t>(h)];
      char* const stays = stays_.data() + std::int64_t{h} * tokens_;
      std::fill_n(stays, own.count, char{0});
      std::fill_n(stays, own.first, char{1});
      std::fill_n(stays + own.scored, own.count - own.scored, char{1});
      const index_t always = own.first + own.count - own.scored;
      left -= always + take(h * tokens_, own.scored, (std::min)(fewest, own.count) - always);
    }
    take(0, kv_heads_ * tokens_, left);
    for (index_t h = 0; h < kv_heads_; ++h) list(stored * kv_heads_ + h, h);
  }

  /// The slots that a KV lane keeps, ascending.
  view<const index_t> slots(index_t kv_lane) const {
    return {slots_.data() + std::int64_t{kv_lane} * most_, {counts_[static_cast<std::size_t>(kv_lane)]}};
  }
  /// Those of the KV lane that keeps most.
  index_t most() const { return *std::max_element(counts_.begin(), counts_.end()); }

 private:
  static bool used(const layout& sizes, const any_policy& policy) {
    return sizes.kept > 0 && policy.evict.per == scope::layer;
  }

  // Marks the best of the `among` places from `first` on that compete, and are not marked yet.
  // @return  how many: `wanted`, or all of them
  index_t take(index_t first, index_t among, std::int64_t wanted) {
    const auto key = [this, first](index_t place) {
      const index_t at = first + place, h = at / tokens_;
      const bool competes = at % tokens_ < lanes_[static_cast<std::size_t>(h)].scored;
      return competes && stays_[static_cast<std::size_t>(at)] == 0
                 ? order_key(importance_[static_cast<std::size_t>(at)])
                 : not_eligible;
    };
    if (wanted <= 0) return 0;
    ranking best(among, key, view<index_t>(order_));
    index_t taken = 0;
    while (taken < wanted && best.next() >= 0) ++taken;
    for (index_t ago = 0; ago < taken; ++ago) stays_[static_cast<std::size_t>(first + best.walked(ago))] = 1;
    return taken;
  }
  void list(index_t kv_lane, index_t h) {
    const lane_tokens& own = lanes_[static_cast<std::size_t>(h)];
    index_t count = 0;
    for (index_t t = 0; t < own.count; ++t) {
      if (stays_[static_cast<std::size_t>(h * tokens_ + t)] == 0) continue;
      slots_[static_cast<std::size_t>(std::int64_t{kv_lane} * most_ + count++)] = own.begin + t;
    }
    counts_[static_cast<std::size_t>(kv_lane)] = count;
  }

  index_t kv_heads_ = 0;
  index_t tokens_ = 0;
  index_t most_ = 0;
  std::vector<float> importance_;   // [kv_heads, tokens]
  std::vector<index_t> order_;      // [kv_heads, tokens]
  std::vector<char> stays_;         // [kv_heads, tokens]
  std::vector<lane_tokens> lanes_;  // [kv_heads]
  std::vector<index_t> slots_;      // [KV lanes, most_kept]
  std::vector<index_t> counts_;     // [KV lanes]
};

}  // namespace zoomr::inline v0::detail

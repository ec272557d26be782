// SPDX-License-Identifier: Apache-2.0
// L6. Which tokens the queries of an item read by a model's index keys, which are the keys of a cache of their own.
#pragma once

#include <zoomr/attention/index_rule.hpp>
#include <zoomr/math/order.hpp>
#include <zoomr/paging/stored_rows.hpp>

#include <algorithm>  // std::fill, std::fill_n, std::max, std::min, std::sort
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Lists tokens for one query.
template <class Lane>
class index_lists {
 public:
  /// @param keys    of the sequence in one layer
  /// @param tokens  that the query sees, its own the last
  index_lists(const Lane& keys, const index_rule& rule, index_t tokens)
      : keys_(keys),
        rule_(rule),
        tokens_(tokens),
        scores_(static_cast<std::size_t>(tokens / rule.block) + 1),
        ids_(scores_.size()) {}

  /// @param queries  [index heads, index_dim]
  /// @param weights  [index heads], or empty: 1
  /// @param listed   [most]  out, as of `list_by_index`
  /// @cost  reads the index keys of all these tokens once for each four heads
  void list(view<const float, 2> queries, view<const float> weights, view<index_t> listed) {
    const index_t complete = tokens_ / rule_.block, open = tokens_ % rule_.block;
    const bool beside = rule_.own == own_block::beside_open && open > 0;
    const index_t blocks = complete + (open > 0 && !beside ? 1 : 0);
    score(beside ? complete * rule_.block : tokens_, queries, weights);
    const auto order = [&](index_t id) {
      const bool first = rule_.own == own_block::first && id == blocks - 1;
      return first ? unlimited_votes : order_key(scores_[static_cast<std::size_t>(id)]);
    };
    ranking ranked(blocks, order, view<index_t>(ids_));
    const index_t taken = (std::min)(blocks, rule_.most);
    for (index_t i = 0; i < taken; ++i) ranked.next();
    // The ranking leaves them behind those that were not taken.
    const auto first = ids_.begin() + (blocks - taken);
    std::sort(first, first + taken);
    index_t count = 0;
    for (auto id = first; id != first + taken; ++id) {
      const index_t end = (std::min)((*id + 1) * rule_.block, tokens_);
      for (index_t t = *id * rule_.block; t < end; ++t) listed[count++] = t;
    }
    for (index_t t = complete * rule_.block; beside && t < tokens_; ++t) listed[count++] = t;
    std::fill(listed.begin() + count, listed.end(), -1);
  }

 private:
  static constexpr votes_t unlimited_votes = (std::numeric_limits<votes_t>::max)();

  // Of all blocks that these tokens reach into.
  void score(index_t tokens, view<const float, 2> queries, view<const float> weights) {
    std::fill(scores_.begin(), scores_.end(), 0.0f);
    for (index_t first = 0; first < queries.extent(0); first += most_heads) {
      const index_t last = (std::min)(first + most_heads, queries.extent(0));
      score_heads(tokens, queries.slice(first, last), weights.size() > 0 ? weights.slice(first, last) : weights);
    }
  }
  void score_heads(index_t tokens, view<const float, 2> queries, view<const float> weights) {
    float products[std::size_t{most_heads * page_tokens}], of_blocks[std::size_t{most_heads}];
    const bool mean = rule_.product == block_product::mean;
    const float none = mean ? 0.0f : -infinity;
    const index_t heads = queries.extent(0);
    std::fill_n(of_blocks, heads, none);
    for (index_t slot = 0; slot < tokens; slot += page_tokens) {
      const index_t count = (std::min)(page_tokens, tokens - slot);
      const view<float, 2> of_page(products, {heads, count}, {page_tokens, 1});
      key_products(keys_, queries, slot, of_page);
      for (index_t head = 0; head < heads; ++head) {
        const float weight = weights.size() > 0 ? weights[head] : 1.0f;
        float product = of_blocks[head];
        for (index_t i = 0; i < count; ++i) {
          product = mean ? product + of_page(head, i) : (std::max)(product, of_page(head, i));
          const index_t end = slot + i + 1;
          if (end % rule_.block != 0 && end != tokens) continue;
          const index_t id = (end - 1) / rule_.block;
          if (mean) product /= static_cast<float>(end - id * rule_.block);
          scores_[static_cast<std::size_t>(id)] += weight * (rule_.relu ? (std::max)(product, 0.0f) : product);
          product = none;
        }
        of_blocks[head] = product;
      }
    }
  }

  static constexpr index_t most_heads = 64;

  Lane keys_;
  index_rule rule_;
  index_t tokens_;
  std::vector<float> scores_;  // [blocks]
  std::vector<index_t> ids_;   // [blocks]
};

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L6. Which tokens the queries of an item read by a model's index keys, which are the keys of a cache of their own.
#pragma once

#include <zoomr/attention/index_rule.hpp>
#include <zoomr/math/order.hpp>
#include <zoomr/paging/stored_rows.hpp>

#include <algorithm>  // std::fill, std::fill_n, std::for_each, std::max, std::min, std::sort
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Lists tokens for one query.
template <class Lane>
class index_lists {
 public:
  /// @param keys    of the sequence in one layer
  /// @param tokens  that the query sees, its own the last
  /// @param lists   1, or one for each head
  index_lists(const Lane& keys, const index_rule& rule, index_t tokens, index_t lists)
      : keys_(keys),
        rule_(rule),
        tokens_(tokens),
        blocks_(tokens / rule.block + 1),
        scores_(static_cast<std::size_t>(lists) * static_cast<std::size_t>(blocks_)),
        ids_(static_cast<std::size_t>(blocks_)) {}

  /// @param queries  [heads, index_dim]
  /// @param weights  [heads], or empty: 1
  /// @param listed   [lists, most]  out, as of `list_by_index`
  /// @cost  reads the index keys of all these tokens once for each four heads
  void list(view<const float, 2> queries, view<const float> weights, view<index_t, 2> listed) {
    const bool alone = listed.extent(0) > 1;
    for (index_t first = 0; first < queries.extent(0); first += most_heads) {
      score(queries.slice(first, (std::min)(first + most_heads, queries.extent(0))), [&](index_t head) {
        const float weight = weights.size() > 0 ? weights[first + head] : 1.0f;
        return head_scores{scores_.data() + (alone ? (first + head) * blocks_ : 0), weight};
      });
    }
    for (index_t list = 0; list < listed.extent(0); ++list) choose(scores_.data() + list * blocks_, listed[list]);
  }

 private:
  static constexpr votes_t before_all = (std::numeric_limits<votes_t>::max)();
  static constexpr index_t most_heads = 64;

  // Where the scores of a head are added, and how much they count.
  struct head_scores {
    float* of_blocks;  // [blocks]
    float weight;
  };

  // The last block has no score where it is read beside the others.
  bool open_beside() const { return rule_.own == own_block::beside_open && tokens_ % rule_.block > 0; }
  index_t complete() const { return tokens_ / rule_.block; }

  // @param scores  [blocks]
  void choose(const float* scores, view<index_t> listed) {
    const bool beside = open_beside();
    const index_t blocks = beside ? complete() : (tokens_ - 1) / rule_.block + 1;
    const auto order = [&](index_t id) {
      return rule_.own == own_block::first && id == blocks - 1 ? before_all : order_key(scores[id]);
    };
    ranking ranked(blocks, order, view<index_t>(ids_));
    const index_t taken = (std::min)(blocks, rule_.most);
    for (index_t i = 0; i < taken; ++i) ranked.next();
    // The ranking leaves them behind those that were not taken.
    const auto first = ids_.begin() + (blocks - taken);
    std::sort(first, first + taken);
    index_t count = 0;
    const auto add = [&](index_t id) {
      const index_t end = (std::min)((id + 1) * rule_.block, tokens_);
      for (index_t t = id * rule_.block; t < end; ++t) listed[count++] = t;
    };
    std::for_each(first, first + taken, add);
    if (beside) add(complete());
    std::fill(listed.begin() + count, listed.end(), -1);
  }

  // scores_of(head): its head_scores, to which the scores of all blocks are added.
  template <class ScoresOf>
  void score(view<const float, 2> queries, ScoresOf scores_of) {
    float products[std::size_t{most_heads * page_tokens}], of_blocks[std::size_t{most_heads}];
    const bool mean = rule_.product == block_product::mean;
    const float none = mean ? 0.0f : -infinity;
    const index_t heads = queries.extent(0), tokens = open_beside() ? complete() * rule_.block : tokens_;
    const auto counted = [&](float product) { return rule_.relu ? (std::max)(product, 0.0f) : product; };
    std::fill_n(of_blocks, heads, none);
    for (index_t slot = 0; slot < tokens; slot += page_tokens) {
      const index_t count = (std::min)(page_tokens, tokens - slot);
      const view<float, 2> of_page(products, {heads, count}, {page_tokens, 1});
      key_products(keys_, queries, slot, of_page);
      for (index_t head = 0; head < heads; ++head) {
        const head_scores into = scores_of(head);
        const float* const of_head = products + head * page_tokens;
        if (rule_.block == 1) {
          for (index_t i = 0; i < count; ++i) into.of_blocks[slot + i] += into.weight * counted(of_head[i]);
          continue;
        }
        float product = of_blocks[head];
        for (index_t i = 0; i < count; ++i) {
          product = mean ? product + of_head[i] : (std::max)(product, of_head[i]);
          const index_t end = slot + i + 1;
          if (end % rule_.block != 0 && end != tokens) continue;
          const index_t id = (end - 1) / rule_.block;
          if (mean) product /= static_cast<float>(end - id * rule_.block);
          into.of_blocks[id] += into.weight * counted(product);
          product = none;
        }
        of_blocks[head] = product;
      }
    }
  }

  Lane keys_;
  index_rule rule_;
  index_t tokens_;
  index_t blocks_;
  std::vector<float> scores_;  // [lists, blocks]
  std::vector<index_t> ids_;   // [blocks]
};

}  // namespace zoomr::inline v0::detail

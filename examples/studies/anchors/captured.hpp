// SPDX-License-Identifier: Apache-2.0
// How much of each layer's attention lies in what the KV heads of earlier layers would choose, and which layers should
// choose for the others.
//
// L = layers, G = kv_heads
#pragma once

#include <zoomr/core/function_ref.hpp>

#include <cstddef>  // std::size_t
#include <span>     // std::span
#include <vector>   // std::vector

#include "../perplexity/prefill.hpp"

namespace decode::anchors {

using zoomr::index_t;

/// What a KV head reads of a query's context, as the control exact@budget does: the first tokens, the last ones, and
/// those with the largest attention of one of its query heads among what is between them.
struct exact_rule {
  index_t budget = 512;

  /// @param weights  [query heads, tokens]  softmax of each over the context, the query's own token the last
  /// @return         ascending
  std::vector<index_t> chosen(std::span<const float> weights, std::size_t tokens) const;
};

/// Shares of attention, added up over queries: that of KV head g of layer l in what KV head m of layer a chooses.
class captured_shares {
 public:
  captured_shares(index_t layers, index_t kv_heads);

  /// Adds those of some queries of a prompt's end.
  /// @param layers  [L]  of the model
  /// @param tokens  the last so many; every `stride`th of them
  /// @pre   the prompt keeps the queries of its last tokens
  void add(const perplexity::prefill& prompt, std::span<const index_t> layers, const exact_rule& rule, index_t tokens,
           index_t stride);
  void add(const captured_shares& other);

  index_t layers() const { return layers_; }
  index_t kv_heads() const { return kv_heads_; }
  /// The mean over queries and the query heads of KV head `g`.
  /// @pre  anchor <= layer
  double share(index_t anchor, index_t m, index_t layer, index_t g) const;
  /// The KV head of `anchor` in whose choice most of it lies.
  index_t best_kv_head(index_t anchor, index_t layer, index_t g) const;
  /// The mean over the KV heads of a layer, each by its best one there, as `by` finds them.
  double share(index_t anchor, index_t layer, const captured_shares& by) const;

 private:
  std::size_t place(index_t anchor, index_t m, index_t layer, index_t g) const {
    const auto row = static_cast<std::size_t>(anchor * kv_heads_ + m);
    return (row * static_cast<std::size_t>(layers_) + static_cast<std::size_t>(layer)) *
               static_cast<std::size_t>(kv_heads_) +
           static_cast<std::size_t>(g);
  }

  index_t layers_;
  index_t kv_heads_;
  std::vector<double> sums_;  // [L, G, L, G]
  double queries_ = 0;
};

/// Which layer each one reads, [L]: those of so many anchors by which the shares add up to most. A layer reads the
/// last anchor up to itself. The first layers are left out, as they choose nothing.
/// @param share   share(anchor, layer)  at least 0
/// @param chosen  layers that are anchors in any case, ascending
/// @pre   dense < L, 1 <= count <= L - dense; the layers of `chosen` and `dense` itself are no more than `count`
/// @cost  O(count * L^2)
std::vector<index_t> best_anchors(index_t layers, index_t count, index_t dense, std::span<const index_t> chosen,
                                  zoomr::function_ref<double(index_t, index_t)> share);

/// The same with anchors at equal distances: what is to be beaten.
std::vector<index_t> even_anchors(index_t layers, index_t count, index_t dense);

}  // namespace decode::anchors

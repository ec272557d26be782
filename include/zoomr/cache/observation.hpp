// SPDX-License-Identifier: Apache-2.0
// L6. Retention: the attention that the prompt's last queries pay to its tokens decides which are kept.
#pragma once

#include <zoomr/core/paged_lane.hpp>
#include <zoomr/math/dot.hpp>
#include <zoomr/math/order.hpp>

#include <algorithm>  // std::fill, std::max, std::min, std::sort
#include <cmath>      // std::sqrt
#include <vector>     // std::vector

namespace zoomr {
inline namespace v0 {

/// Measures one lane at a time; working memory for the longest prompt.
class observation {
 public:
  observation() = default;
  explicit observation(index tokens) {
    const auto size = static_cast<std::size_t>(tokens);
    weights_.resize(size), of_head_.resize(size), of_lane_.resize(size), order_.resize(size);
  }
  static byte_count bytes(index tokens) { return tokens * static_cast<byte_count>(3 * sizeof(float) + sizeof(index)); }

  /// Positions that the lane keeps, ascending.
  ///
  /// @param queries  [observed, group, head_dim]  of the prompt's last tokens
  /// @param prompt   tokens of the prompt, in slots = positions
  /// @param sinks    first tokens that are kept in any case, like the observed ones
  /// @param kept     [how many to keep]  out
  /// @cost  reads the lane's keys once for each observed query and head
  template <class T, class Retainer>
  void keep(const Retainer& retain, const paged_lane<T>& lane, view<const float, 3> queries, index prompt, index sinks,
            view<index> kept) {
    const index observed = queries.extent(0);
    const index scored = prompt - observed;  // the observed tokens themselves are kept
    std::fill(of_lane_.begin(), of_lane_.begin() + scored, 0.0f);
    for (index head = 0; head < queries.extent(1); ++head) {
      std::fill(of_head_.begin(), of_head_.begin() + scored, 0.0f);
      for (index i = 0; i < observed; ++i) add_attention(lane, queries[i][head].data(), scored + i + 1, scored);
      pool(retain, scored, head);
    }
    choose(scored, observed, sinks, kept);
  }

 private:
  // Adds the attention probabilities of one query over [0, context) to those of the tokens before `scored`.
  template <class T>
  void add_attention(const paged_lane<T>& lane, const float* query, index context, index scored) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(lane.head_dim));
    float largest = -infinity;
    for (index t = 0; t < context; ++t) {
      at(weights_, t) = scale * dot(query, lane.key(t), lane.head_dim);
      largest = std::max(largest, at(weights_, t));
    }
    float sum = 0.0f;
    for (index t = 0; t < context; ++t) {
      at(weights_, t) = exponential(at(weights_, t) - largest);
      sum += at(weights_, t);
    }
    for (index t = 0; t < scored; ++t) at(of_head_, t) += at(weights_, t) / sum;
  }

  // The maximum over a window around each token, then the mean (as a sum) or the maximum over the group.
  template <class Retainer>
  void pool(const Retainer& retain, index scored, index head) {
    const index half = retain.pooling / 2;
    for (index t = 0; t < scored; ++t) {
      float pooled = at(of_head_, t);
      for (index u = std::max(0, t - half); u <= std::min(scored - 1, t + half); ++u) {
        pooled = std::max(pooled, at(of_head_, u));
      }
      float& sum = at(of_lane_, t);
      sum = retain.mean_of_group || head == 0 ? sum + pooled : std::max(sum, pooled);
    }
  }

  // Sinks and observed tokens in any case, the rest by importance.
  void choose(index scored, index observed, index sinks, view<index> kept) {
    const index by_importance_end = kept.size() - observed;
    const index safe = std::min({sinks, scored, by_importance_end});
    const auto key = [&](index t) { return t < safe ? not_eligible : sortable(at(of_lane_, t)); };
    ranking best(scored, key, view<index>(order_));
    index count = 0;
    while (count < safe) kept[count] = count, ++count;
    while (count < by_importance_end) kept[count++] = best.next();
    for (index t = scored; count < kept.size(); ++t) kept[count++] = t;
    std::sort(kept.begin(), kept.end());
  }

  float& at(std::vector<float>& of, index t) { return of[static_cast<std::size_t>(t)]; }

  std::vector<float> weights_;  // [tokens]  one query's attention
  std::vector<float> of_head_;  // [tokens]  summed over the observed queries
  std::vector<float> of_lane_;  // [tokens]  pooled over the group
  std::vector<index> order_;    // [tokens]
};

}  // namespace v0
}  // namespace zoomr

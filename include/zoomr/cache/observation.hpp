// SPDX-License-Identifier: Apache-2.0
// L6. What tokens have received of later queries' attention, and which of them a lane keeps for it.
#pragma once

#include <zoomr/cache/config.hpp>
#include <zoomr/concepts.hpp>
#include <zoomr/core/paged_lane.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/math/dot.hpp>
#include <zoomr/math/softmax.hpp>

#include <algorithm>  // std::fill, std::max, std::min, std::sort
#include <vector>     // std::vector

namespace zoomr {
inline namespace v0 {

/// Measures one lane at a time; working memory for the longest sequence. Everything is by slot.
class observation {
 public:
  observation() = default;
  observation(const shape& model, index tokens, bool reads_keys, const config& given = {})
      : tokens_(tokens), head_dim_(model.head_dim), given_(given) {
    const auto size = static_cast<std::size_t>(tokens);
    weights_.resize(size), importance_.resize(size), order_.resize(size), kept_.resize(size);
    sums_.resize(size * static_cast<std::size_t>(model.group()));
    if (reads_keys) keys_.resize(size * static_cast<std::size_t>(model.head_dim));
  }
  static byte_count bytes(const shape& model, index tokens, bool reads_keys) {
    const index floats = 2 + model.group() + (reads_keys ? model.head_dim : 0);
    return tokens * static_cast<byte_count>(static_cast<std::size_t>(floats) * sizeof(float) + 2 * sizeof(index));
  }

  /// Working memory for the sums of one query head of the group.  [tokens]
  view<float> sums(index head, index tokens) { return {sums_.data() + std::int64_t{head} * tokens_, {tokens}}; }
  /// Those of the whole group.  [group, tokens]
  view<const float, 2> all_sums(index group, index tokens) const {
    return {sums_.data(), {group, tokens}, {tokens_, 1}};
  }
  /// Working memory for the slots that a lane keeps.
  view<index> kept(index count) { return {kept_.data(), {count}}; }

  /// Lets one query be heard by the retainer, or adds the attention that it pays, over the slots [0, context).
  /// @param heard    all but its keys and working memory; its own slot is the last
  template <class Lane, class Retainer>
  void hear(const Retainer& retain, const Lane& lane, heard_query heard, index context, view<float> sums) {
    if constexpr (hearing_observer<Retainer>) {
      heard.keys = {keys_.data(), {context, lane.head_dim}};
      heard.work = view<float>(weights_).slice(0, context);
      retain.hear(heard, sums);
    } else {
      add(lane, heard.query.data(), context, sums);
    }
  }

  /// Must come before `hear` for each lane, and before `choose`: a retainer that reads keys is given a copy.
  template <class Lane>
  void copy_keys(const Lane& lane, index tokens) {
    if (keys_.empty()) return;
    for (index t = 0; t < tokens; ++t) {
      for (index d = 0; d < lane.head_dim; ++d)
        keys_[static_cast<std::size_t>(t) * static_cast<std::size_t>(lane.head_dim) + static_cast<std::size_t>(d)] =
            given_.key_of(lane.key(t)[d]);
    }
  }

  /// Adds the attention probabilities of one query over the slots [0, context) to `sums`: all NaN if a logit is, or if
  /// the largest is infinite. Weights are summed as integers, so that a device gets the same.
  /// @pre   context <= 2^22
  /// @cost  reads the keys of the context once
  template <class Lane>
  void add(const Lane& lane, const float* query, index context, view<float> sums) {
    const float scale = given_.logit_scale(lane.head_dim);
    float largest = -infinity;
    for (index t = 0; t < context; ++t) {
      at(weights_, t) = fused(scale, dot(query, lane.key(t), lane.head_dim), -0.0f);
      largest = std::max(largest, at(weights_, t));
    }
    tally units = 0;
    bool odd = false;
    for (index t = 0; t < context; ++t) {
      const float weight = exponential(at(weights_, t) - largest);
      odd = odd || is_nan(weight);
      units += is_nan(weight) ? 0 : units_of(weight);
      at(weights_, t) = weight;
    }
    const float sum = odd ? not_a_number : sum_of_units(units);
    for (index t = 0; t < context; ++t) sums[t] += quotient(at(weights_, t), sum);
  }

  /// Slots that the lane keeps, ascending: sinks and last tokens in any case, the rest by what the retainer rates
  /// highest.
  ///
  /// @param received  [group, tokens]  attention probability, summed over the observed queries
  /// @param queries   how many those were
  /// @param first     tokens at the front that are kept in any case: sinks, and a prompt that is pinned
  /// @param kept      [how many to keep]  out; fewer than tokens, at least the last ones that are safe
  template <class Retainer>
  void choose(const Retainer& retain, view<const float, 2> received, index queries, index first, view<index> kept) {
    const index tokens = received.extent(1);
    const index last = retain.safe(tokens);
    lane_attention seen{received, {}, tokens - last, queries};
    if constexpr (Retainer::reads_keys) seen.keys = {keys_.data(), {tokens, head_dim_}};
    retain.rate(seen, view<float>(importance_).slice(0, tokens));
    const index rated_end = kept.size() - last;
    const index safe = std::min({first, seen.scored, rated_end});
    const auto key = [&](index t) { return t < safe ? not_eligible : sortable(at(importance_, t)); };
    ranking best(seen.scored, key, view<index>(order_));
    index count = 0;
    while (count < safe) kept[count] = count, ++count;
    while (count < rated_end) kept[count++] = best.next();
    for (index t = seen.scored; count < kept.size(); ++t) kept[count++] = t;
    std::sort(kept.begin(), kept.end());
  }

 private:
  float& at(std::vector<float>& of, index t) { return of[static_cast<std::size_t>(t)]; }

  index tokens_ = 0;
  index head_dim_ = 0;
  config given_;                   // for its scales
  std::vector<float> weights_;     // [tokens]  one query's attention
  std::vector<float> sums_;        // [group, tokens]  summed over the observed queries
  std::vector<float> importance_;  // [tokens]  as the retainer rates them
  std::vector<float> keys_;        // [tokens, head_dim]  if the retainer reads keys
  std::vector<index> order_;       // [tokens]
  std::vector<index> kept_;        // [tokens]
};

}  // namespace v0
}  // namespace zoomr

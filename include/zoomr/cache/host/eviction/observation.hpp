// SPDX-License-Identifier: Apache-2.0
// L6. What tokens have received of later queries' attention, and which of them a KV lane keeps for it.
//
//   received[slot] += exp(logit(slot) - largest) / sum of exp(logit - largest)   for each observed query of each head
//                      unless the evictor updates importance itself
//   importance      = what the evictor rates them at, from `received` of the group
//   kept            = sinks, last tokens, and those of the highest importance; ties to the lower slot, NaN last; pinned
//                     tokens come before all others
#pragma once

#include <zoomr/attention/run_logits.hpp>
#include <zoomr/cache/config.hpp>
#include <zoomr/cache/host/eviction/pinned_tokens.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/math/softmax.hpp>
#include <zoomr/paging/stored_rows.hpp>
#include <zoomr/policy/any_policy.hpp>

#include <algorithm>  // std::fill, std::max, std::min, std::sort
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Measures one KV lane at a time; working memory for the longest sequence. Everything is by slot. For each KV lane:
/// `copy_keys`, `add` for each observed token, or `update_importance` for each query head and token, then `choose`.
class observation {
 public:
  observation() = default;
  observation(const shape& model, index_t tokens, bool reads_keys) : tokens_(tokens), head_dim_(model.head_dim) {
    const auto size = static_cast<std::size_t>(tokens);
    importance_.resize(size);
    order_.resize(size);
    kept_.resize(size);
    sums_.resize(size * static_cast<std::size_t>(model.group()));
    weights_.resize(sums_.size());
    if (reads_keys) keys_.resize(size * static_cast<std::size_t>(model.head_dim));
  }
  static byte_count bytes(const shape& model, index_t tokens, bool reads_keys) {
    const index_t floats = 1 + 2 * model.group() + (reads_keys ? model.head_dim : 0);
    return tokens * static_cast<byte_count>(static_cast<std::size_t>(floats) * sizeof(float) + 2 * sizeof(index_t));
  }

  /// Working memory for the sums of one query head of the group.  [tokens]
  view<float> sums(index_t head, index_t tokens) { return {sums_.data() + std::int64_t{head} * tokens_, {tokens}}; }
  /// Those of the whole group.  [group, tokens]
  view<const float, 2> all_sums(index_t group, index_t tokens) const {
    return {sums_.data(), {group, tokens}, {tokens_, 1}};
  }
  /// Working memory for the slots that a KV lane keeps.
  view<index_t> kept(index_t count) { return {kept_.data(), {count}}; }

  /// Lets one query update the importance of tokens by the evictor's rule, over the slots [0, context).
  /// @param observed  all but its keys and working memory; its own slot is the last
  /// @param sums      [at least context]  of this query head, in the evictor's unit
  /// @pre   evict.updates_importance
  void update_importance(const any_evictor& evict, observed_query observed, index_t context, view<float> sums) {
    observed.keys = {keys_.data(), {context, head_dim_}};
    observed.work = view<float>(weights_).slice(0, context);
    evict.update_importance(observed, sums);
  }

  /// Must come before `update_importance` for each KV lane, and before `choose`: an evictor that reads keys reads this
  /// copy.
  template <class Lane>
  void copy_keys(const Lane& kv_lane, index_t tokens, float key_scale) {
    if (keys_.empty()) return;
    for (index_t t = 0; t < tokens; ++t) {
      read_row(kv_lane.key(t), t, key_scale, {keys_.data() + std::int64_t{t} * head_dim_, {head_dim_}});
    }
  }

  /// Adds the attention probabilities of one token's queries over the slots [0, context) to `sums` of their heads: all
  /// NaN if a logit is, or if the largest is infinite. Weights are summed as integers, so that a device gets the same.
  /// @param queries  [group, head_dim]  rotated
  /// @param scale    of the logits
  /// @param hook     what the model does to them, for the group's heads at the token's position
  /// @pre   context <= 2^22
  /// @cost  reads the keys of the context once for each four queries; an exponential and 2 * head_dim flops for each
  template <class Lane>
  void add(const Lane& kv_lane, view<const float, 2> queries, index_t context, float scale,
           const model_logits& hook = {}) {
    const view<float, 2> weights(weights_.data(), {queries.extent(0), context}, {tokens_, 1});
    for (index_t first = 0; first < context; first += page_tokens) {
      const index_t tokens = (std::min)(page_tokens, context - first);
      const view<float, 2> of_page(&weights(0, first), {queries.extent(0), tokens}, {tokens_, 1});
      key_products(kv_lane, queries, first, of_page);
    }
    for (index_t g = 0; g < queries.extent(0); ++g) {
      const view<float> of_head(&weights(g, 0), {context});
      if (hook.lane.plain()) {
        add_shares(of_head, scale, sums(g, context));
      } else {
        scale_row(fastest_cpu_path(), hook, g, scale, of_head, 0);
        add_shares(of_head, 1.0f, sums(g, context));
      }
    }
  }

  /// Slots that the KV lane keeps, ascending: sinks and last tokens in any case, the rest by what the evictor rates
  /// highest.
  ///
  /// @param received  [group, tokens]  attention probability, summed over the observed queries, or what the evictor has
  ///                  made of it
  /// @param queries   how many those were
  /// @param first     tokens at the front that are kept in any case: sinks, and a prompt that is pinned
  /// @param kept      [how many to keep]  out; fewer than tokens, at least the last ones that are safe
  /// @param pinned    tokens that are rated infinite
  /// @param slots     of the KV lane
  /// @cost  what the evictor's `rate` costs, and O(n log n) for n tokens
  void choose(const any_evictor& evict, view<const float, 2> received, index_t queries, index_t first,
              view<index_t> kept, const pinned_tokens& pinned = {}, const slot_map& slots = {}) {
    const index_t tokens = received.extent(1);
    const index_t last = evict.safe(tokens);
    kv_lane_attention seen{received, {}, tokens - last, queries};
    if (evict.reads_keys) seen.keys = {keys_.data(), {tokens, head_dim_}};
    evict.rate(seen, view<float>(importance_).slice(0, tokens));
    const index_t rated_end = kept.size() - last;
    const index_t safe = (std::min)({first, seen.scored, rated_end});
    for (index_t t = safe; pinned.any() && t < seen.scored; ++t) {
      if (pinned.has_position(slots.position_of(t))) at(importance_, t) = infinity;
    }
    const auto key = [&](index_t t) { return t < safe ? not_eligible : order_key(at(importance_, t)); };
    ranking best(seen.scored, key, view<index_t>(order_));
    index_t count = 0;
    while (count < safe) {
      kept[count] = count;
      ++count;
    }
    while (count < rated_end) kept[count++] = best.next();
    for (index_t t = seen.scored; count < kept.size(); ++t) kept[count++] = t;
    std::sort(kept.begin(), kept.end());
  }

 private:
  // sums += exp(scale * products - largest) / sum of that
  // @param weights  the products; overwritten
  static void add_shares(view<float> weights, float scale, view<float> sums) {
    float largest = -infinity;
    on_fastest_path([&] {
      constexpr index_t lanes = 16;  // maxima that do not wait for each other
      float most[lanes];
      std::fill_n(most, lanes, -infinity);
      const auto take = [&](index_t t, index_t lane) {
        weights[t] = fused(scale, weights[t], -0.0f);
        most[lane] = weights[t] > most[lane] ? weights[t] : most[lane];
      };
      index_t t = 0;
      for (; t + lanes <= weights.size(); t += lanes) {
        for (index_t lane = 0; lane < lanes; ++lane) take(t + lane, lane);
      }
      for (; t < weights.size(); ++t) take(t, 0);
      for (const float maximum : most) largest = (std::max)(largest, maximum);
    });
    exponentials(fastest_cpu_path(), weights, largest);
    on_fastest_path([&] {
      votes_t units = 0;
      bool odd = false;
      for (const float weight : weights) {
        odd |= is_nan(weight);
        units += is_nan(weight) ? 0 : units_of(weight);
      }
      const float sum = odd ? not_a_number : sum_of_units(units);
      const float* const weight = weights.data();
      float* const to = sums.data();
      for (index_t t = 0; t < weights.size(); ++t) to[t] += quotient(weight[t], sum);
    });
  }

  float& at(std::vector<float>& table, index_t t) { return table[static_cast<std::size_t>(t)]; }

  index_t tokens_ = 0;
  index_t head_dim_ = 0;
  std::vector<float> weights_;     // [group, tokens]  attention of one token's queries
  std::vector<float> sums_;        // [group, tokens]  summed over the observed queries
  std::vector<float> importance_;  // [tokens]  as the evictor rates them
  std::vector<float> keys_;        // [tokens, head_dim]  if the evictor reads keys
  std::vector<index_t> order_;     // [tokens]
  std::vector<index_t> kept_;      // [tokens]
};

}  // namespace zoomr::inline v0::detail

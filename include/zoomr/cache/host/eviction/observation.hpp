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

/// How the share of a query joins those of the queries before it.
struct added {
  static float join(float so_far, float share) { return so_far + share; }
};
/// The same where one query counts for each slot; what is not a number for none.
struct greatest {
  static float join(float so_far, float share) { return share > so_far ? share : so_far; }
};

/// Measures one KV lane at a time; working memory for the longest sequence. Everything is by slot. For each KV lane:
/// `copy_keys`, `add` for each observed token, or `update_importance` for each query head and token, then `choose`.
class observation {
 public:
  observation() = default;
  /// @param rows  of sums, at least; there is one for each query head of a KV head in any case
  observation(const shape& model, index_t tokens, bool reads_keys, index_t rows = 1)
      : tokens_(tokens), head_dim_(model.head_dim) {
    const auto size = static_cast<std::size_t>(tokens);
    importance_.resize(size);
    order_.resize(size);
    kept_.resize(size);
    sums_.resize(size * static_cast<std::size_t>((std::max)(rows, model.group())));
    weights_.resize(size * static_cast<std::size_t>(model.group()));
    if (reads_keys) keys_.resize(size * static_cast<std::size_t>(model.head_dim));
  }
  /// The rows that an evictor needs: where voters evict their shares are added up beside those of one of them.
  static index_t rows_for(const any_evictor& evict) { return evict.per == scope::sequence ? 2 : 1; }
  static byte_count bytes(const shape& model, index_t tokens, bool reads_keys, index_t rows) {
    const index_t floats = 1 + (std::max)(rows, model.group()) + model.group() + (reads_keys ? model.head_dim : 0);
    return tokens * static_cast<byte_count>(static_cast<std::size_t>(floats) * sizeof(float) + 2 * sizeof(index_t));
  }

  /// Working memory for the sums of one query head of the group.  [tokens]
  view<float> sums(index_t head, index_t tokens) { return {sums_.data() + std::int64_t{head} * tokens_, {tokens}}; }
  /// Those of the whole group, from slot `begin` on.  [group, tokens - begin]
  view<const float, 2> all_sums(index_t group, index_t tokens, index_t begin = 0) const {
    return {sums_.data() + begin, {group, tokens - begin}, {tokens_, 1}};
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
  /// @param begin    the first slot that holds a token; nothing is added to those before it
  /// @pre   context <= 2^22
  /// @tparam Join  how a share joins what there is: `added`, or `greatest`
  /// @cost  reads the keys of the context once for each four queries; an exponential and 2 * head_dim flops for each
  template <class Join = added, class Lane>
  void add(const Lane& kv_lane, view<const float, 2> queries, index_t context, float scale,
           const model_logits& hook = {}, index_t begin = 0) {
    const view<float, 2> weights(weights_.data(), {queries.extent(0), context}, {tokens_, 1});
    for (index_t first = begin, last = 0; first < context; first = last) {
      last = (std::min)(context, (first / page_tokens + 1) * page_tokens);
      const index_t tokens = last - first;
      const view<float, 2> of_page(&weights(0, first), {queries.extent(0), tokens}, {tokens_, 1});
      key_products(kv_lane, queries, first, of_page);
    }
    for (index_t g = 0; g < queries.extent(0); ++g) {
      const view<float> of_head(&weights(g, begin), {context - begin});
      const view<float> so_far = sums(g, context).slice(begin, context);
      if (hook.lane.plain()) {
        add_shares<Join>(of_head, scale, so_far);
      } else {
        scale_row(fastest_cpu_path(), hook, g, scale, of_head, begin);
        add_shares<Join>(of_head, 1.0f, so_far);
      }
    }
  }

  /// What the evictor rates the tokens at that compete; infinite are those that are pinned.  [scored]
  /// Arguments as of `choose`.
  /// @param begin  the slot of the first token
  view<const float> rate(const any_evictor& evict, view<const float, 2> received, index_t queries,
                         const pinned_tokens& pinned, const slot_map& slots, index_t begin = 0) {
    const index_t tokens = received.extent(1);
    kv_lane_attention seen{received, {}, tokens - evict.safe(tokens), queries};
    if (evict.reads_keys) seen.keys = {keys_.data(), {tokens, head_dim_}};
    evict.rate(seen, view<float>(importance_).slice(0, tokens));
    for (index_t t = 0; pinned.any() && t < seen.scored; ++t) {
      if (pinned.has_position(slots.position_of(begin + t))) at(importance_, t) = infinity;
    }
    return view<const float>(importance_).slice(0, seen.scored);
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
    const view<const float> importance = rate(evict, received, queries, pinned, slots);
    const index_t last = received.extent(1) - importance.size();
    const index_t rated_end = kept.size() - last;
    const index_t safe = (std::min)({first, importance.size(), rated_end});
    const auto key = [&](index_t t) { return t < safe ? not_eligible : order_key(importance[t]); };
    ranking best(importance.size(), key, view<index_t>(order_));
    index_t count = 0;
    while (count < safe) {
      kept[count] = count;
      ++count;
    }
    while (count < rated_end) kept[count++] = best.next();
    for (index_t t = importance.size(); count < kept.size(); ++t) kept[count++] = t;
    std::sort(kept.begin(), kept.end());
  }

 private:
  // sums joined with exp(scale * products - largest) / sum of that
  // @param weights  the products; overwritten
  template <class Join>
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
      for (index_t t = 0; t < weights.size(); ++t) to[t] = Join::join(to[t], quotient(weight[t], sum));
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

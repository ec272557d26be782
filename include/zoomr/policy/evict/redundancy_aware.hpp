// SPDX-License-Identifier: Apache-2.0
// L4. Attended, and unlike the rest: each KV head keeps what its last queries attend to and no other key repeats.
#pragma once

#include <zoomr/math/dot.hpp>
#include <zoomr/math/softmax.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Keeps, for each layer and KV head, `tokens` tokens: the sinks, the last `queries` ones, and those with the highest
///   attention * importance - (1 - attention) * redundancy
/// at the end of the prompt and after every `every` tokens from there, so that a KV lane holds up to tokens + every.
///
/// Importance: of each of the last `queries` queries the logits, over the group of a KV head their maximum or mean, a
/// softmax over the tokens before these queries; the mean of that over the queries; then the maximum over a centred
/// window of `pooling` of those tokens. A logit that is not a number takes no part.
/// Redundancy: a key's mean cosine with all keys of the KV lane, itself not counted, then a softmax over the keys. Each
/// key spares one other its cosine: the last of those whose cosine with it exceeds `similar`, so that of repetitions
/// the latest stays; where there is none, the KV lane's first key. Cosines that are not numbers count as 0.
/// @cost    each time: reads the KV lane's keys once for each observed query and head; n * n dot products for n tokens
/// @source  R-KV, arXiv:2505.24133, as its released code has it. Differs: the sinks are kept (undescribed there).
struct redundancy_aware {
  using role = role::evictor;
  static constexpr const char* name = "redundancy_aware";
  static constexpr bool observes = true;
  static constexpr bool accumulates = false;
  static constexpr bool reads_keys = true;
  static constexpr bool while_decoding = true;

  index_t tokens = unlimited;  // of each KV lane, the observed ones included; unlimited: nothing is lost
  index_t queries = 8;         // alpha, the observation window
  index_t every = 128;         // the buffer: tokens from one time to the next
  index_t pooling = 7;         // width of the maximum, odd; 1: none
  bool mean_of_group = false;  // logits over the query heads of a KV head: mean, or maximum
  float attention = 0.07f;     // lambda, the weight of importance; 0.1 in the paper
  float similar = 0.5f;        // cosine above which a key repeats another

  ZOOMR_HD constexpr index_t kept(index_t total) const { return tokens < total ? tokens : total; }
  ZOOMR_HD constexpr index_t observed(index_t total) const { return queries < total ? queries : total; }
  ZOOMR_HD constexpr index_t safe(index_t total) const { return observed(total); }

  /// Adds to what the tokens have received through the group's first head [tokens] the shares of the whole group.
  void update_importance(const observed_query& observed, view<float> received) const {
    if (observed.head > 0) return;
    const index_t dims = observed.keys.extent(1);
    for (index_t t = 0; t < observed.earlier; ++t) {
      float so_far = 0.0f;
      for (index_t head = 0; head < observed.group.extent(0); ++head) {
        so_far = joined(head, so_far,
                        product_of(dot(observed.group[head].data(), observed.keys[t].data(), dims), observed, head, t));
      }
      observed.work[t] = logit_of(so_far, observed);
    }
    const softmax shares(observed.earlier, [&](index_t t) { return observed.work[t]; });
    for (index_t t = 0; t < observed.earlier && shares.sum() > 0.0f; ++t) received[t] += shares.share(t);
  }
  /// What of the product of a head's query with key `t` is joined: itself, if all logits of the group are the same
  /// multiples of products, else its logit.
  ZOOMR_HD static float product_of(float product, const observed_query& observed, index_t head, index_t t) {
    return observed.logits.plain() ? product : observed.logits(observed.scaled(product), head, t, observed.position);
  }
  /// The products of a group so far, and that of `head`; NaN stays. Heads must come in ascending order.
  ZOOMR_HD float joined(index_t head, float so_far, float product) const {
    if (head == 0) return product;
    if (mean_of_group) return so_far + product;
    return product > so_far || is_nan(product) ? product : so_far;
  }
  /// The natural logit that the group's joined products are.
  ZOOMR_HD float logit_of(float joined, const observed_query& observed) const {
    const float heads = mean_of_group ? static_cast<float>(observed.group.extent(0)) : 1.0f;
    const float of_group = quotient(joined, heads);
    return observed.logits.plain() ? observed.scaled(of_group) : of_group;
  }

  /// The rating of each scored token. `seen.keys` are unit vectors afterwards; what the first head has received counts
  /// for the group.
  void rate(const kv_lane_attention& seen, view<float> importance) const {
    const index_t n = seen.tokens();
    add_cosines(seen.keys, importance);
    const softmax redundancy(n, [&](index_t t) { return quotient(importance[t], static_cast<float>(n)); });
    for (index_t t = 0; t < seen.scored; ++t) importance[t] = rated(seen, t, redundancy.share(t));
  }
  /// @param redundancy  of token `t`
  ZOOMR_HD float rated(const kv_lane_attention& seen, index_t t, float redundancy) const {
    kv_lane_attention observed = seen;
    observed.received = seen.received.slice(0, 1);  // the group is observed with its first head
    const float weight = quotient(attention, static_cast<float>(seen.queries));
    return fused(weight, observed.pooled(t, pooling, false), fused(attention - 1.0f, redundancy, -0.0f));
  }
  constexpr const char* problem() const {
    if (queries < 1 || pooling < 1 || pooling % 2 == 0) {
      return "redundancy_aware: queries must be at least 1 and pooling odd";
    }
    if (tokens < queries) return "redundancy_aware: tokens must be at least queries, which are always kept";
    if (every < queries) return "redundancy_aware: every must be at least queries, which are observed";
    if (!(attention >= 0.0f && attention <= 1.0f)) return "redundancy_aware: attention must lie in [0, 1]";
    return nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("tokens", self.tokens);
    visit("queries", self.queries);
    visit("every", self.every);
    visit("pooling", self.pooling);
    visit("mean_of_group", self.mean_of_group);
    visit("attention", self.attention);
    visit("similar", self.similar);
  }
  friend constexpr bool operator==(const redundancy_aware&, const redundancy_aware&) = default;

 private:
  // Adds to sums[t] the cosines of key t with all others but those that spare it, row by row; keys [tokens, head_dim]
  // become unit vectors.
  void add_cosines(view<float, 2> keys, view<float> sums) const {
    const index_t n = keys.extent(0);
    const index_t dims = keys.extent(1);
    for (index_t t = 0; t < n; ++t) {
      const float length = square_root(dot(keys[t].data(), keys[t].data(), dims));
      for (index_t d = 0; d < dims; ++d) keys(t, d) = length > 0.0f ? quotient(keys(t, d), length) : 0.0f;
      sums[t] = 0.0f;
    }
    for (index_t row = 0; row < n; ++row) {
      bool spared = false;
      for (index_t t = n - 1; t >= 0; --t) {
        if (t == row) continue;
        const float cosine = dot(keys[row].data(), keys[t].data(), dims);
        if (!spared && (cosine > similar || t == 0)) {
          spared = true;
        } else if (!is_nan(cosine)) {
          sums[t] += cosine;
        }
      }
    }
  }
};

static_assert(evictor<redundancy_aware> && decoding_observer<redundancy_aware> && importance_updater<redundancy_aware>);

}  // namespace zoomr::inline v0

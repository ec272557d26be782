// SPDX-License-Identifier: Apache-2.0
// The naive reference's rules for which tokens are evicted: from all that was ever said, in double, for each KV lane.
#pragma once

#include <support/reference_history.hpp>
#include <zoomr/zoomr.hpp>

namespace reference {

/// What one KV lane holds when tokens must be evicted.
struct kv_lane_tokens {
  std::vector<const float*> keys;             // of the held tokens, ascending
  std::vector<std::vector<double>> received;  // [group][held]  attention probability, summed over the observed queries
  index_t scored = 0;                         // the first so many compete
  index_t queries = 0;                        // that were observed
  index_t head_dim = 0;
};

/// The largest number within `width` scored tokens around `t`.
inline double largest_around(const std::vector<double>& of, index_t t, index_t width, index_t scored) {
  double most = of[static_cast<std::size_t>(t)];
  for (index_t u = t - width / 2; u <= t + width / 2; ++u) {
    if (u >= 0 && u < scored) most = std::max(most, of[static_cast<std::size_t>(u)]);
  }
  return most;
}

/// For each head the largest around `t`; then over the group the sum or the largest.
inline double pooled(const kv_lane_tokens& kv_lane, index_t t, index_t width, bool sum) {
  double all = largest_around(kv_lane.received[0], t, width, kv_lane.scored);
  for (std::size_t head = 1; head < kv_lane.received.size(); ++head) {
    const double of_head = largest_around(kv_lane.received[head], t, width, kv_lane.scored);
    all = sum ? all + of_head : std::max(all, of_head);
  }
  return all;
}

/// Each evictor rates a token; `doubtful`: float may rate it otherwise.
inline std::vector<estimate> rate(const zoomr::observation_window& by, const kv_lane_tokens& kv_lane, bool&) {
  std::vector<estimate> made;
  for (index_t t = 0; t < kv_lane.scored; ++t) {
    const double received = pooled(kv_lane, t, by.pooling, by.mean_of_group);
    made.push_back({received, received});
  }
  return made;
}
inline std::vector<estimate> rate(const zoomr::accumulated_attention&, const kv_lane_tokens& kv_lane, bool&) {
  std::vector<estimate> made(static_cast<std::size_t>(kv_lane.scored));
  for (const auto& of_head : kv_lane.received) {
    for (std::size_t t = 0; t < made.size(); ++t) made[t].value += of_head[t], made[t].magnitude += of_head[t];
  }
  return made;
}
inline std::vector<estimate> rate(const zoomr::redundancy_aware& by, const kv_lane_tokens& kv_lane, bool& doubtful) {
  const std::size_t n = kv_lane.keys.size();
  const auto product = [&](const float* a, const float* b) {
    double sum = 0;
    for (index_t d = 0; d < kv_lane.head_dim; ++d) sum += double{a[d]} * double{b[d]};
    return sum;
  };
  // all cosines; the matrix is small
  std::vector<std::vector<double>> cosine(n, std::vector<double>(n, 0.0));
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) {
      const double lengths =
          std::sqrt(product(kv_lane.keys[a], kv_lane.keys[a])) * std::sqrt(product(kv_lane.keys[b], kv_lane.keys[b]));
      const double value = product(kv_lane.keys[a], kv_lane.keys[b]) / lengths;
      if (a != b && std::isfinite(lengths) && lengths > 0) cosine[a][b] = value;
    }
  }
  // of those that repeat key `a`, the last is spared, or if there are none the first key
  for (std::size_t a = 0; a < n; ++a) {
    std::size_t last = 0;
    for (std::size_t b = 0; b < n; ++b) {
      if (cosine[a][b] > double{by.similar}) last = b;
      doubtful = doubtful || std::abs(cosine[a][b] - double{by.similar}) < tolerance::reduction(kv_lane.head_dim);
    }
    cosine[a][last] = 0;
  }
  std::vector<double> redundancy(n);
  double all = 0;
  for (std::size_t b = 0; b < n; ++b) {
    double mean = 0;
    for (std::size_t a = 0; a < n; ++a) mean += cosine[a][b] / static_cast<double>(n);
    all += redundancy[b] = std::exp(mean);
  }
  std::vector<estimate> made;
  for (index_t t = 0; t < kv_lane.scored; ++t) {
    const double importance = largest_around(kv_lane.received[0], t, by.pooling, kv_lane.scored) / kv_lane.queries;
    const double repeated = redundancy[static_cast<std::size_t>(t)] / all;
    const double weight = double{by.attention};
    made.push_back({weight * importance - (1 - weight) * repeated, weight * importance + (1 - weight) * repeated});
  }
  return made;
}

/// Which tokens each KV lane holds.
template <class Evictor>
class eviction {
 public:
  eviction(const Evictor& by, const history& past, const zoomr::zones& zone)
      : by_(by),
        past_(past),
        sinks_(zone.sinks),
        prompt_end_(static_cast<index_t>(past.words.prompt_end)),
        pinned_(zone.prompt ? prompt_end_ : 0),
        asked_until_(pinned_),
        evicted_(static_cast<std::size_t>(past.model.layers * past.model.kv_heads),
                 std::vector<bool>(past.words.classes.size())),
        received_(static_cast<std::size_t>(past.model.layers * past.model.heads),
                  std::vector<double>(past.words.classes.size())) {}

  bool retained(index_t layer, index_t kv_head, index_t position) const {
    return !evicted_[kv_lane(layer, kv_head)][static_cast<std::size_t>(position)];
  }

  /// After the token at `position`, for tokens from the prompt's last on: is it time, and what goes?
  /// @param pinned  pinned(position)  it cannot go
  /// @return true if float may decide otherwise
  template <class Pinned>
  bool after(index_t position, Pinned pinned) {
    bool doubtful = false;
    if constexpr (Evictor::observes) {
      const index_t end = position + 1;
      const auto later = past_.later_prompt_at(position);
      const index_t from = past_.generated_from(position);
      bool due = end == from;
      if constexpr (Evictor::while_decoding) due = due || (!later && (end - from) % by_.every == 0);
      if (!due || by_.tokens == zoomr::unlimited || end <= pinned_) return false;
      for (index_t layer = 0; layer < past_.model.layers; ++layer) {
        if (!past_.donors.empty() && past_.donors[static_cast<std::size_t>(layer)] != layer) continue;
        for (index_t kv_head = 0; kv_head < past_.model.kv_heads; ++kv_head)
          doubtful = evict_tokens(layer, kv_head, end, pinned) || doubtful;
      }
      asked_until_ = end;
    }
    return doubtful && !past_.exact;
  }

 private:
  // That of the layer's donor.
  std::size_t kv_lane(index_t layer, index_t kv_head) const {
    if (!past_.donors.empty()) layer = past_.donors[static_cast<std::size_t>(layer)];
    return static_cast<std::size_t>(layer * past_.model.kv_heads + kv_head);
  }
  index_t group() const { return past_.model.heads / past_.model.kv_heads; }

  template <class Pinned>
  bool evict_tokens(index_t layer, index_t kv_head, index_t end, Pinned pinned) {
    std::vector<index_t> held;
    for (index_t t = 0; t < end; ++t) {
      if (retained(layer, kv_head, t)) held.push_back(t);
    }
    const auto n = static_cast<index_t>(held.size());
    const auto later = past_.later_prompt_at(end - 1);
    const index_t last_ones = std::max(later ? later->first : 0, end - observed(end));
    const index_t first = Evictor::accumulates ? asked_until_ : last_ones;
    bool doubtful = false;
    kv_lane_tokens seen;
    seen.head_dim = past_.model.head_dim;
    seen.queries = end - first;
    seen.scored = n - safe(n);
    for (const index_t t : held) seen.keys.push_back(past_.key(t, layer, kv_head, 0));
    for (index_t head = kv_head * group(); head < (kv_head + 1) * group(); ++head) {
      std::vector<double>& sums = received_[static_cast<std::size_t>(layer * past_.model.heads + head)];
      if (!Evictor::accumulates) std::fill(sums.begin(), sums.end(), 0.0);
      for (index_t query = first; query < end; ++query) {
        if constexpr (std::same_as<Evictor, zoomr::redundancy_aware>) {
          if (head == kv_head * group()) add_group_attention(layer, kv_head, query, held, first, sums);
        } else {
          add_attention(layer, kv_head, head, query, held, sums);
        }
      }
      seen.received.emplace_back();
      for (const index_t t : held) seen.received.back().push_back(sums[static_cast<std::size_t>(t)]);
    }
    if (n - pinned_ <= by_.tokens) return doubtful;

    const std::vector<estimate> importance = rate(by_, seen, doubtful);
    index_t room = pinned_ + by_.tokens - (n - seen.scored);
    std::vector<index_t> others;
    for (index_t i = 0; i < seen.scored; ++i) {
      const index_t t = held[static_cast<std::size_t>(i)];
      if ((t < std::max(sinks_, pinned_) && room > 0) || pinned(t)) {
        --room;
      } else {
        others.push_back(i);
      }
    }
    others = ranked(importance, others);
    for (std::size_t i = static_cast<std::size_t>(room); i < others.size(); ++i) {
      evicted_[kv_lane(layer, kv_head)][static_cast<std::size_t>(held[static_cast<std::size_t>(others[i])])] = true;
    }
    if (room == 0 || room == static_cast<index_t>(others.size())) return doubtful;
    const estimate& last = importance[static_cast<std::size_t>(others[static_cast<std::size_t>(room) - 1])];
    const estimate& next = importance[static_cast<std::size_t>(others[static_cast<std::size_t>(room)])];
    const double allowed =
        tolerance::end_to_end(past_.model.head_dim, std::max(1.0, largest_logit_), end) * std::abs(last.magnitude);
    const bool close = last.value > next.value && last.value - next.value <= allowed;  // equal: so they are in float
    return close || doubtful;
  }

  index_t observed(index_t of) const {
    if constexpr (requires { by_.queries; }) return std::min(by_.queries, of);
    return of;
  }
  index_t safe(index_t of) const {
    if constexpr (requires { by_.recent; }) return std::min(by_.recent, of);
    return observed(of);
  }

  // Adds what the queries of a group at one token pay together to the tokens before those that ask: for each the
  // largest of their logits, or the mean, then a softmax.
  void add_group_attention(index_t layer, index_t kv_head, index_t query, const std::vector<index_t>& held,
                           index_t first, std::vector<double>& sums) {
    std::vector<double> logits;
    double largest = -std::numeric_limits<double>::infinity();
    const auto earlier = std::lower_bound(held.begin(), held.end(), first) - held.begin();
    for (index_t i = 0; i < earlier; ++i) {
      const float* k = past_.key(held[static_cast<std::size_t>(i)], layer, kv_head, 0);
      std::vector<double> of_heads;
      for (index_t head = kv_head * group(); head < (kv_head + 1) * group(); ++head) {
        const float* q = past_.query(query, layer, head, 0);
        double logit = 0, magnitude = 0;
        for (index_t d = 0; d < past_.model.head_dim; ++d) {
          logit += double{q[d]} * double{k[d]};
          magnitude += std::abs(double{q[d]} * double{k[d]});
        }
        of_heads.push_back(logit_of(logit, magnitude, head, held[static_cast<std::size_t>(i)], query));
      }
      double all = of_heads[0], sum = 0;
      for (const double logit : of_heads) {
        sum += logit;
        if (logit > all || std::isnan(logit)) all = logit;
      }
      logits.push_back(by_.mean_of_group ? sum / static_cast<double>(of_heads.size()) : all);
      if (logits.back() > largest) largest = logits.back();
    }
    std::vector<double> weights;
    double all = 0;
    for (const double logit : logits) {
      weights.push_back(std::isnan(logit) ? 0.0 : logit == largest ? 1.0 : std::exp(logit - largest));
      all += weights.back();
    }
    for (index_t i = 0; i < earlier && all > 0; ++i)
      sums[static_cast<std::size_t>(held[static_cast<std::size_t>(i)])] += weights[static_cast<std::size_t>(i)] / all;
  }

  // The logit of a product, whose terms' magnitudes add up to `magnitude`. Sinks are no tokens.
  double logit_of(double product, double magnitude, index_t head, index_t key, index_t query) {
    const index_t head_dim = past_.model.head_dim;
    largest_logit_ = std::max(largest_logit_,
                              past_.logits.scaled(magnitude, head_dim) + std::abs(past_.logits.bias(head, key, query)));
    return past_.logits.logit(product, head_dim, head, key, query);
  }

  // Adds what one query pays to the tokens that it can see of those held.
  void add_attention(index_t layer, index_t kv_head, index_t head, index_t query, const std::vector<index_t>& held,
                     std::vector<double>& sums) {
    const float* const q = past_.query(query, layer, head, 0);
    std::vector<double> logits;
    logits.reserve(held.size());
    double largest = -std::numeric_limits<double>::infinity();
    for (const index_t t : held) {
      if (t > query) break;
      const float* k = past_.key(t, layer, kv_head, 0);
      double logit = 0, magnitude = 0;
      for (index_t d = 0; d < past_.model.head_dim; ++d) {
        logit += double{q[d]} * double{k[d]};
        magnitude += std::abs(double{q[d]} * double{k[d]});
      }
      logits.push_back(logit_of(logit, magnitude, head, t, query));
      largest = std::max(largest, logits.back());
    }
    double sum = 0;
    std::vector<double>& weights = logits;
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    for (std::size_t i = 0; i < weights.size(); ++i) sums[static_cast<std::size_t>(held[i])] += weights[i] / sum;
  }

  Evictor by_;
  const history& past_;
  index_t sinks_;
  index_t prompt_end_;
  index_t pinned_;
  index_t asked_until_;
  double largest_logit_ = 0;
  std::vector<std::vector<bool>> evicted_;     // [KV lane][position]
  std::vector<std::vector<double>> received_;  // [layer, head][position]
};

}  // namespace reference

// SPDX-License-Identifier: Apache-2.0
// The naive reference's history of a text, attention in double, and ranking.
#pragma once

#include <support/reference_segments.hpp>
#include <support/tolerance.hpp>
#include <zoomr/core/shape.hpp>

#include <algorithm>  // std::sort, std::max
#include <cmath>      // std::exp
#include <limits>     // std::numeric_limits
#include <vector>     // std::vector

namespace reference {

using zoomr::shape;
namespace tolerance = zoomr_test::tolerance;

/// What a model does to its logits; as it is made here, the usual scale alone.
struct logits_of_model {
  double scale = 0;            // of products; 0: 1 / sqrt(head_dim)
  double soft_cap = 0;         // 0: none
  std::vector<double> sinks;   // [layers, heads]; empty: none
  std::vector<double> slopes;  // [heads]  of the bias by distance; empty: none
  index_t window = 0;          // a query at i sees the keys at j with i - j < window; 0: all

  /// The first position that a query at `position` sees.
  index_t first_seen(index_t position) const { return window == 0 ? 0 : std::max(0, position - window + 1); }
  double scaled(double product, index_t head_dim) const {
    return scale > 0 ? product * scale : product / std::sqrt(static_cast<double>(head_dim));
  }
  double capped(double logit) const { return soft_cap > 0 ? soft_cap * std::tanh(logit / soft_cap) : logit; }
  /// At most 0.
  double bias(index_t head, index_t key, index_t query) const {
    return slopes.empty() ? 0.0 : -slopes[static_cast<std::size_t>(head)] * static_cast<double>(query - key);
  }
  /// The logit of a token, from the product of its key with a query.
  double logit(double product, index_t head_dim, index_t head, index_t key, index_t query) const {
    return capped(scaled(product, head_dim)) + bias(head, key, query);
  }
};

/// Everything that was ever passed: classes, and queries, keys and values of both passes.
struct history {
  shape model;
  text words;
  std::vector<float> queries[2];  // [pass][token, layer, head, head_dim]
  std::vector<float> keys[2];     // [pass][token, layer, kv_head, head_dim]  as stored
  std::vector<float> values[2];   // [pass][token, layer, kv_head, head_dim]  as stored
  logits_of_model logits;
  bool exact = false;  // scores are exact in float: no close calls

  const float* query(index_t position, index_t layer, index_t head, index_t pass) const {
    return row(queries[pass], position, layer, model.heads, head);
  }
  const float* key(index_t position, index_t layer, index_t kv_head, index_t pass) const {
    return row(keys[pass], position, layer, model.kv_heads, kv_head);
  }
  const float* value(index_t position, index_t layer, index_t kv_head, index_t pass) const {
    return row(values[pass], position, layer, model.kv_heads, kv_head);
  }

 private:
  const float* row(const std::vector<float>& of, index_t position, index_t layer, index_t heads, index_t head) const {
    const auto place = (static_cast<std::size_t>(position) * static_cast<std::size_t>(model.layers) +
                        static_cast<std::size_t>(layer)) *
                           static_cast<std::size_t>(heads) +
                       static_cast<std::size_t>(head);
    return of.data() + place * static_cast<std::size_t>(model.head_dim);
  }
};

/// A number and the sum of the magnitudes that were added up to make it, for its rounding.
struct estimate {
  double value = 0;
  double magnitude = 0;
};

struct attention {
  std::vector<double> out;
  double lse = -std::numeric_limits<double>::infinity();
  double largest_value = 0;  // magnitudes, for tolerances
  double largest_logit = 0;
};

/// Softmax attention of one query over `positions`; `key` and `value` give rows by position.
/// @param of     what the model does to logits
/// @param row    layer * heads + head of the query, at position `at`
template <class Keys, class Values>
attention attend(const std::vector<index_t>& positions, const float* query, index_t head_dim, Keys key, Values value,
                 const logits_of_model& of = {}, index_t row = 0, index_t heads = 1, index_t at = 0) {
  const index_t head = row % heads;
  attention made;
  made.out.assign(static_cast<std::size_t>(head_dim), 0.0);
  std::vector<double> logits;
  logits.reserve(positions.size());
  double largest = -std::numeric_limits<double>::infinity();
  for (const index_t position : positions) {
    const float* const of_key = key(position);
    const float* const of_value = value(position);
    double logit = 0;
    double magnitude = 0;
    for (index_t d = 0; d < head_dim; ++d) {
      logit += double{query[d]} * double{of_key[d]};
      magnitude += std::abs(double{query[d]} * double{of_key[d]});
      made.largest_value = std::max(made.largest_value, std::abs(double{of_value[d]}));
    }
    logits.push_back(of.logit(logit, head_dim, head, position, at));
    largest = logits.back() <= largest ? largest : logits.back();
    made.largest_logit =
        std::max(made.largest_logit, of.scaled(magnitude, head_dim) + std::abs(of.bias(head, position, at)));
  }
  double sum = 0;
  if (!of.sinks.empty()) {  // a token whose value is zero
    const double sink = of.sinks[static_cast<std::size_t>(row)];
    largest = sink > largest ? sink : largest;
    sum = std::exp(sink - largest);
  }
  for (std::size_t t = 0; t < positions.size(); ++t) {
    const double weight = std::exp(logits[t] - largest);
    const float* const of_value = value(positions[t]);
    sum += weight;
    for (index_t d = 0; d < head_dim; ++d) made.out[static_cast<std::size_t>(d)] += weight * double{of_value[d]};
  }
  for (double& number : made.out) number /= sum;
  made.lse = largest + std::log(sum);
  return made;
}

/// Ids [0, values.size()), highest value first, ties to the lower id, NaN last.
inline std::vector<index_t> ranked(const std::vector<estimate>& values, std::vector<index_t> ids) {
  const auto at = [&](index_t id) { return values[static_cast<std::size_t>(id)].value; };
  std::sort(ids.begin(), ids.end(), [&](index_t a, index_t b) {
    if (std::isnan(at(a)) || std::isnan(at(b)))
      return std::isnan(at(a)) == std::isnan(at(b)) ? a < b : std::isnan(at(b));
    return at(a) != at(b) ? at(a) > at(b) : a < b;
  });
  return ids;
}

}  // namespace reference

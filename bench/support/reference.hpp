// SPDX-License-Identifier: Apache-2.0
// Attention as it is written in books, in double: what every row that attends is compared with.
#pragma once

#include <zoomr/core/types.hpp>

#include <algorithm>  // std::max
#include <cmath>      // std::exp, std::log, std::sqrt
#include <limits>     // std::numeric_limits
#include <vector>     // std::vector

#include "check.hpp"

namespace zoomr_bench {

/// One query head over some tokens.
struct attention_of_books {
  std::vector<double> out;  // [head_dim]
  double lse = 0;           // ln(sum of exp(logit))
  double largest = 0;       // |value|
  double allowed = 0;       // what float may differ by: of `lse`, and of `out` as a share of `largest`
};

/// softmax(q . k / sqrt(head_dim)) v.
/// @param key, value  key(t, d): a number of the t-th attended token
/// @param width       numbers of a value; 0: as many as of a key
template <class Key, class Value>
attention_of_books attention(const std::vector<float>& query, zoomr::index_t tokens, Key key, Value value,
                             zoomr::index_t width = 0) {
  const auto head_dim = static_cast<zoomr::index_t>(query.size());
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  std::vector<double> weights;
  double most = -std::numeric_limits<double>::infinity(), magnitude = 0;
  for (zoomr::index_t t = 0; t < tokens; ++t) {
    double logit = 0, magnitudes = 0;
    for (zoomr::index_t d = 0; d < head_dim; ++d) {
      const double product = static_cast<double>(query[static_cast<std::size_t>(d)]) * static_cast<double>(key(t, d));
      logit += product, magnitudes += std::abs(product);
    }
    weights.push_back(logit * scale);
    most = std::max(most, weights.back()), magnitude = std::max(magnitude, magnitudes * scale);
  }
  attention_of_books made;
  const zoomr::index_t dims = width > 0 ? width : head_dim;
  made.out.assign(static_cast<std::size_t>(dims), 0.0);
  double sum = 0;
  for (zoomr::index_t t = 0; t < tokens; ++t) {
    const double weight = std::exp(weights[static_cast<std::size_t>(t)] - most);
    sum += weight;
    for (zoomr::index_t d = 0; d < dims; ++d) {
      const auto number = static_cast<double>(value(t, d));
      made.out[static_cast<std::size_t>(d)] += weight * number;
      made.largest = std::max(made.largest, std::abs(number));
    }
  }
  for (double& each : made.out) each /= sum;
  made.lse = most + std::log(sum);
  made.allowed = tolerance::end_to_end(head_dim, magnitude, tokens);
  return made;
}

/// What is rounded beside float's own arithmetic.
struct roundings {
  double of_out = 0;      // as a share of an output
  double of_weights = 0;  // as a share of the largest |value|
};

/// @param out  out(d): what the kernel has given
/// @throws wrong
template <class Out>
void expect_outputs(const attention_of_books& expected, Out out, const roundings& rounds = {}) {
  comparison outputs("out");
  for (std::size_t d = 0; d < expected.out.size(); ++d) {
    outputs.close(
        static_cast<double>(out(static_cast<zoomr::index_t>(d))), expected.out[d],
        (expected.allowed + rounds.of_weights) * expected.largest + rounds.of_out * std::abs(expected.out[d]));
  }
  outputs.expect_some();
}
/// @param rounded  what weights are rounded by before they are added up, as a share of each
inline void expect_lse(const attention_of_books& expected, float lse, double rounded = 0.0) {
  comparison("lse").close(static_cast<double>(lse), expected.lse,
                          expected.allowed * (1 + std::abs(expected.lse)) + rounded);
}

}  // namespace zoomr_bench

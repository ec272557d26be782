// SPDX-License-Identifier: Apache-2.0
// Attention as it is written in books, in double: what every row that attends is compared with.
#pragma once

#include <zoomr/core/types.hpp>

#include <algorithm>  // std::max
#include <cmath>      // std::abs, std::sqrt
#include <vector>     // std::vector

#include "../../tests/support/naive_attention.hpp"
#include "check.hpp"

namespace zoomr_bench {

/// One query head over some tokens.
struct attention_of_books : zoomr_test::naive_result {
  double largest = 0;  // |value|
  double allowed = 0;  // what float may differ by: of `lse`, and of `out` as a share of `largest`
};

/// softmax(q . k / sqrt(head_dim)) v.
/// @param key, value  key(t, d): a number of the t-th attended token
/// @param width       numbers of a value; 0: as many as of a key
template <class Key, class Value>
attention_of_books attention(const std::vector<float>& query, zoomr::index_t tokens, Key key, Value value,
                             zoomr::index_t width = 0) {
  const auto head_dim = static_cast<zoomr::index_t>(query.size());
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  double magnitude = 0, largest = 0;
  const auto logit = [&](zoomr::index_t t) {
    double sizes = 0;
    const auto numbers = [&](zoomr::index_t d) {
      const auto number = static_cast<double>(key(t, d));
      sizes += std::abs(query[static_cast<std::size_t>(d)] * number);
      return number;
    };
    const double product = zoomr_test::naive_dot(head_dim, query.data(), numbers);
    magnitude = std::max(magnitude, sizes * scale);
    return product * scale;
  };
  const auto row = [&](zoomr::index_t t) {
    return [&, t](zoomr::index_t d) {
      const auto number = static_cast<double>(value(t, d));
      largest = std::max(largest, std::abs(number));
      return number;
    };
  };
  attention_of_books made{zoomr_test::naive_attention(tokens, width > 0 ? width : head_dim, logit, row)};
  made.largest = largest;
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

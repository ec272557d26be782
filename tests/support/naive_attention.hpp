// SPDX-License-Identifier: Apache-2.0
// Attention as it is written in books, in double: what faster attention is compared with. A test says what a logit is
// and where values lie; scale, soft cap, bias and window are its own.
#pragma once

#include <zoomr/core/storage.hpp>

#include <cmath>        // std::exp, std::log
#include <cstddef>      // std::size_t
#include <limits>       // std::numeric_limits
#include <type_traits>  // std::is_pointer_v
#include <vector>       // std::vector

namespace zoomr_test {

inline constexpr double no_sink = -std::numeric_limits<double>::infinity();

/// What one query head gets.
struct naive_result {
  std::vector<double> out;                                // [width]; zeros where nothing is attended
  double lse = -std::numeric_limits<double>::infinity();  // ln(sum of exp(logit)); where nothing is, this
};

/// The d-th number of a row: a pointer to stored numbers, or row(d).
template <class Row>
double naive_number(const Row& row, zoomr::index_t d) {
  if constexpr (std::is_pointer_v<Row>) {
    return static_cast<double>(zoomr::to_float(row[d]));
  } else {
    return static_cast<double>(row(d));
  }
}

/// q . k, without a scale.
template <class Query, class Key>
double naive_dot(zoomr::index_t head_dim, const Query& query, const Key& key) {
  double sum = 0;
  for (zoomr::index_t d = 0; d < head_dim; ++d) sum += naive_number(query, d) * naive_number(key, d);
  return sum;
}

/// The softmax of the logits, and the sum of values under it.
/// @param logit  logit(t): of the t-th token that is attended
/// @param value  value(t): its row, [width]
/// @param sink   the logit of a token without a value
template <class Logit, class Value>
naive_result naive_attention(zoomr::index_t tokens, zoomr::index_t width, Logit logit, Value value,
                             double sink = no_sink) {
  std::vector<double> logits;
  double largest = sink;
  for (zoomr::index_t t = 0; t < tokens; ++t) {
    logits.push_back(logit(t));
    largest = logits.back() <= largest ? largest : logits.back();
  }
  naive_result result{std::vector<double>(static_cast<std::size_t>(width)), largest};
  if (tokens == 0 && sink == no_sink) return result;
  double sum = std::exp(sink - largest);
  for (zoomr::index_t t = 0; t < tokens; ++t) {
    const double weight = std::exp(logits[static_cast<std::size_t>(t)] - largest);
    sum += weight;
    const auto row = value(t);
    for (zoomr::index_t d = 0; d < width; ++d) {
      result.out[static_cast<std::size_t>(d)] += weight * naive_number(row, d);
    }
  }
  for (double& number : result.out) number /= sum;
  result.lse = largest + std::log(sum);
  return result;
}

}  // namespace zoomr_test

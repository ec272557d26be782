// SPDX-License-Identifier: Apache-2.0
// From logits to the next token: greedy, or drawn at random at a temperature from the likeliest
// tokens. The same seed draws the same tokens with every standard library: mt19937_64's bits are
// fixed by the standard, its distributions are not, so none is used.
#pragma once

#include <algorithm>  // std::max_element, std::ranges::sort
#include <cmath>      // std::exp, std::isnan
#include <cstdint>    // std::uint64_t
#include <limits>     // std::numeric_limits
#include <numeric>    // std::iota
#include <random>     // std::mt19937_64
#include <span>       // std::span
#include <vector>     // std::vector

#include "config.hpp"
#include "input_error.hpp"

namespace decode {

struct sampler_options {
  double temperature = 0;  // 0: greedy; 1: the model's own probabilities
  double top_p = 1;        // the likeliest tokens whose probabilities reach this sum, in (0, 1]
  std::uint64_t seed = 0;
};

/// The id of the largest logit, ties to the lower id.
///
/// @param logits  [vocab]  not empty
/// @throws        input_error if one is NaN or +infinity: the weights, though finite, overflow
inline token_id greedy(std::span<const float> logits) {
  for (const float logit : logits)
    if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity())
      fail("the model's logits are not finite: its weights are too large");
  return static_cast<token_id>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

class sampler {
 public:
  explicit sampler(sampler_options options = {}) : options_(options), bits_(options.seed) {
    if (!(options.temperature >= 0 && options.temperature <= 100))
      fail("the temperature is ", options.temperature, ", but must lie between 0 and 100");
    if (!(options.top_p > 0 && options.top_p <= 1)) fail("top-p is ", options.top_p, ", but must lie in (0, 1]");
  }

  /// The next token. Draws one random number, or none if greedy.
  ///
  /// @param logits  [vocab]  not empty
  token_id operator()(std::span<const float> logits) {
    const token_id best = greedy(logits);
    if (options_.temperature == 0) return best;

    const double largest = logits[static_cast<std::size_t>(best)];
    weights_.resize(logits.size());  // [vocab] exp((logit - largest) / τ), <= 1
    double total = 0;
    for (std::size_t id = 0; id < logits.size(); ++id)
      total += weights_[id] = std::exp((double{logits[id]} - largest) / options_.temperature);

    order_.resize(logits.size());  // [vocab] ids, likeliest first
    std::iota(order_.begin(), order_.end(), token_id{0});
    if (options_.top_p < 1) {
      std::ranges::sort(order_, [&](token_id a, token_id b) {
        const double x = weight(a), y = weight(b);
        return x != y ? x > y : a < b;
      });
      double sum = 0;
      std::size_t kept = 0;
      while (kept < order_.size() && sum < options_.top_p * total) sum += weight(order_[kept++]);
      order_.resize(kept);
      total = sum;
    }

    double point = uniform() * total;
    for (const token_id id : order_)
      if ((point -= weight(id)) < 0) return id;
    return best;  // all was rounded away
  }

 private:
  double weight(token_id id) const { return weights_[static_cast<std::size_t>(id)]; }

  // In [0, 1): the upper 53 bits.
  double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }

  sampler_options options_;
  std::mt19937_64 bits_;
  std::vector<double> weights_;
  std::vector<token_id> order_;
};

}  // namespace decode

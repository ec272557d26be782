// SPDX-License-Identifier: Apache-2.0
#include "sampler.hpp"

#include <algorithm>  // std::max_element, std::ranges::sort
#include <cmath>      // std::exp, std::isnan
#include <limits>     // std::numeric_limits
#include <numeric>    // std::iota

#include "input_error.hpp"

namespace decode {

token_id greedy(std::span<const float> logits) {
  for (const float logit : logits)
    if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity())
      fail("the model's logits are not finite: its weights are too large");
  return static_cast<token_id>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

sampler::sampler(sampler_options options) : options_(options), bits_(options.seed) {
  if (!(options.temperature >= 0 && options.temperature <= 100))
    fail("the temperature is ", options.temperature, ", but must lie between 0 and 100");
  if (!(options.top_p > 0 && options.top_p <= 1)) fail("top-p is ", options.top_p, ", but must lie in (0, 1]");
}

token_id sampler::operator()(std::span<const float> logits) {
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

}  // namespace decode

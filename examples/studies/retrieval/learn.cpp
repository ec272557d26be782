// SPDX-License-Identifier: Apache-2.0
#include "learn.hpp"

#include <algorithm>  // std::fill, std::max, std::max_element, std::min, std::stable_sort
#include <cmath>      // std::exp
#include <numeric>    // std::iota

namespace decode::retrieval {
namespace {

// softmax of the weighted sums of one example
void posterior(const example& of, const std::vector<double>& weights, std::vector<double>& made) {
  made.assign(of.segments, 0.0);
  for (std::size_t head = 0; head < weights.size(); ++head) {
    if (weights[head] == 0) continue;
    const float* const share = &of.log_share[head * of.segments];
    for (std::size_t id = 0; id < of.segments; ++id) made[id] += weights[head] * double{share[id]};
  }
  const double largest = *std::max_element(made.begin(), made.end());
  double sum = 0;
  for (double& one : made) sum += one = std::exp(one - largest);
  for (double& one : made) one /= sum;
}

}  // namespace

std::vector<float> learn(const std::vector<const example*>& examples, std::size_t heads, const learning& how) {
  std::vector<double> weights(heads, 0.02), gradient(heads), made;
  double sum_of_weights = 0;
  for (const example* one : examples) sum_of_weights += one->weight;
  for (int round = 0; round < how.rounds; ++round) {
    std::fill(gradient.begin(), gradient.end(), 0.0);
    for (const example* of : examples) {
      posterior(*of, weights, made);
      for (std::size_t head = 0; head < heads; ++head) {
        const float* const share = &of->log_share[head * of->segments];
        double expected = 0;
        for (std::size_t id = 0; id < of->segments; ++id) expected += made[id] * double{share[id]};
        gradient[head] += of->weight * (double{share[of->target]} - expected);
      }
    }
    for (std::size_t head = 0; head < heads; ++head) {
      const double step = gradient[head] / sum_of_weights - how.penalty;
      weights[head] = std::max(0.0, weights[head] + how.rate * step);
    }
  }
  std::vector<float> rounded;
  for (const double weight : weights) rounded.push_back(weight < 1e-3 ? 0.0f : static_cast<float>(weight));
  return rounded;
}

found judge(const std::vector<const example*>& examples, const std::vector<float>& weights) {
  found made;
  std::vector<double> probability;
  for (const example* of : examples) {
    posterior(*of, {weights.begin(), weights.end()}, probability);
    std::vector<std::size_t> order(of->segments);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return probability[a] > probability[b]; });
    double covered = 0;
    bool in_set = false;
    std::size_t taken = 0;
    for (; taken < std::min<std::size_t>(4, order.size()) && (taken == 0 || covered < 0.9); ++taken) {
      covered += probability[order[taken]];
      in_set = in_set || order[taken] == of->target;
    }
    made.examples += of->weight;
    made.first += order.front() == of->target ? of->weight : 0;
    made.in_set += in_set ? of->weight : 0;
    made.taken += of->weight * static_cast<double>(taken);
  }
  return made;
}

}  // namespace decode::retrieval

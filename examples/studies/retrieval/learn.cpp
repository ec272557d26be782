// SPDX-License-Identifier: Apache-2.0
#include "learn.hpp"

#include <algorithm>  // std::max, std::max_element, std::min
#include <cmath>      // std::exp, std::log
#include <stdexcept>  // std::invalid_argument

namespace decode::retrieval {
namespace {

void add_logits(const example& from, const std::vector<double>& weights, std::vector<double>& logits) {
  logits.assign(from.segments, 0.0);
  for (std::size_t head = 0; head < weights.size(); ++head) {
    if (weights[head] == 0) continue;
    const float* const share = &from.log_share[head * from.segments];
    for (std::size_t id = 0; id < from.segments; ++id) logits[id] += weights[head] * double{share[id]};
  }
}

double log_sum(const std::vector<double>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

// ln(exp(a) + exp(b)), of which b may be that of no class
double log_sum(double a, double b) {
  const double largest = std::max(a, b);
  return largest + std::log(std::exp(a - largest) + std::exp(b - largest));
}

}  // namespace

likelihood::likelihood(const std::vector<const example*>& examples, std::size_t heads)
    : examples_(examples), logits_(examples.size()), log_sums_(examples.size()) {
  for (const example* const sample : examples) {
    weight_ += sample->weight;
    if (sample->needed.empty()) weight_of_none_ += sample->weight;
    std::vector<float>& shares = by_head_.emplace_back(heads * sample->segments);
    for (std::size_t head = 0; head < heads; ++head) {
      for (std::size_t id = 0; id < sample->segments; ++id) {
        shares[id * heads + head] = sample->log_share[head * sample->segments + id];
      }
    }
  }
}

// visit(share of the example, logit of a target and of none in part, the target's part of it, its segments by part)
template <class Visit>
void likelihood::each_target(std::size_t of_example, double none, objective goal, double part, Visit visit) const {
  const example& sample = *examples_[of_example];
  const std::vector<double>& logits = logits_[of_example];
  const double in_part = part > 0 ? none + std::log(part) : no_class;
  if (goal == objective::each) {
    const double share = 1.0 / static_cast<double>(sample.needed.size());
    for (const std::size_t id : sample.needed) {
      const double sum = log_sum(logits[id], in_part);
      visit(share, sum, std::exp(logits[id] - sum), [&](auto segment) { segment(id, 1.0); });
    }
    return;
  }
  std::vector<double> needed;
  for (const std::size_t id : sample.needed) needed.push_back(logits[id]);
  const double segments = log_sum(needed), sum = log_sum(segments, in_part);
  visit(1.0, sum, std::exp(segments - sum), [&](auto segment) {
    for (const std::size_t id : sample.needed) segment(id, std::exp(logits[id] - segments));
  });
}

double likelihood::slope_of_none(std::size_t of_example, double none, objective goal, double part) const {
  double target = 1;
  if (!examples_[of_example]->needed.empty()) {
    each_target(of_example, none, goal, part,
                [&](double share, double, double part_of_segments, auto) { target -= share * part_of_segments; });
  }
  return target - std::exp(none - log_sum(log_sums_[of_example], none));
}

void likelihood::pass(const std::vector<double>& weights) {
  for (std::size_t i = 0; i < examples_.size(); ++i) {
    add_logits(*examples_[i], weights, logits_[i]);
    log_sums_[i] = log_sum(logits_[i]);
  }
}

slopes likelihood::at(const std::vector<double>& weights, none_logit by_length, objective goal, double part) {
  pass(weights);
  slopes found{.heads = std::vector<double>(weights.size())};
  std::vector<double> missing;  // [segments]  what the probability should be, less what it is
  for (std::size_t i = 0; i < examples_.size(); ++i) {
    const example& sample = *examples_[i];
    const double none = by_length.among(sample.segments);
    const double weight = sample.weight / weight_, total = log_sum(log_sums_[i], none);
    missing.clear();
    for (const double logit : logits_[i]) missing.push_back(-std::exp(logit - total));
    if (sample.needed.empty()) {
      found.value += weight * (none - total);
    } else {
      each_target(i, none, goal, part, [&](double share, double logit_of_target, double part_of_segments, auto visit) {
        found.value += weight * share * (logit_of_target - total);
        visit([&](std::size_t id, double of_segments) { missing[id] += share * part_of_segments * of_segments; });
      });
    }
    const double of_none = weight * slope_of_none(i, none, goal, part);
    found.none += of_none, found.none_slope -= of_none * std::log(static_cast<double>(sample.segments));
    for (std::size_t id = 0; id < sample.segments; ++id) {
      if (std::abs(missing[id]) < 1e-12) continue;
      const double step = weight * missing[id];
      const float* const share = &by_head_[i][id * weights.size()];
      for (std::size_t head = 0; head < weights.size(); ++head) found.heads[head] += step * double{share[head]};
    }
  }
  return found;
}

none_logit likelihood::best_none(const std::vector<double>& weights, objective goal, double part, double slope) {
  if (weight_of_none_ == 0) return {};
  if (weight_of_none_ == weight_) throw std::invalid_argument("no example needs a segment");
  pass(weights);
  return best_none_of_pass(goal, part, slope);
}

none_logit likelihood::best_none_by_length(const std::vector<double>& weights, objective goal, double part) {
  constexpr double steepest = 8;
  std::size_t fewest = 0, most = 0;  // segments where nothing is needed
  for (const example* const sample : examples_) {
    if (!sample->needed.empty()) continue;
    fewest = most == 0 ? sample->segments : std::min(fewest, sample->segments);
    most = std::max(most, sample->segments);
  }
  const none_logit flat = best_none(weights, goal, part);
  if (most == 0 || most < 2 * fewest) return flat;
  // At the best logit for each slope, the derivative by the slope alone is that of both.
  double low = 0, high = steepest;
  while (high - low > 1e-4) {
    const double middle = (low + high) / 2;
    const none_logit none = best_none_of_pass(goal, part, middle);
    double derivative = 0;
    for (std::size_t i = 0; i < examples_.size(); ++i) {
      const std::size_t segments = examples_[i]->segments;
      derivative -= examples_[i]->weight * slope_of_none(i, none.among(segments), goal, part) *
                    std::log(static_cast<double>(segments));
    }
    (derivative > 0 ? low : high) = middle;
  }
  return best_none_of_pass(goal, part, low == 0 ? 0 : (low + high) / 2);
}

none_logit likelihood::best_none_of_pass(objective goal, double part, double slope) const {
  // Its derivative falls from above 0 to below.
  double low = *std::min_element(log_sums_.begin(), log_sums_.end()) - 40;
  double high = *std::max_element(log_sums_.begin(), log_sums_.end()) + 40;
  double most = 0;  // ln segments
  for (const example* const sample : examples_) most = std::max(most, std::log(static_cast<double>(sample->segments)));
  high += slope * most;
  while (high - low > 1e-9 * std::max(1.0, std::abs(high))) {
    const none_logit middle{(low + high) / 2, slope};
    double derivative = 0;
    for (std::size_t i = 0; i < examples_.size(); ++i) {
      derivative += examples_[i]->weight * slope_of_none(i, middle.among(examples_[i]->segments), goal, part);
    }
    (derivative > 0 ? low : high) = middle.one;
  }
  return {(low + high) / 2, slope};
}

std::vector<double> posterior(const example& from, const voter_weights& weights) {
  std::vector<double> logits;
  add_logits(from, {weights.heads.begin(), weights.heads.end()}, logits);
  logits.push_back(weights.none.among(from.segments));
  const double sum = log_sum(logits);
  for (double& logit : logits) logit = std::exp(logit - sum);
  return logits;
}

voter_weights learn(const std::vector<const example*>& examples, std::size_t heads, const learning& how) {
  likelihood on(examples, heads);
  std::vector<double> weights(heads, 0.02);
  std::fill_n(weights.begin(), std::min(how.left_out, heads), 0.0);
  double slope = 0;
  for (int round = 0; round < how.rounds; ++round) {
    const double part = round < how.rounds / 3 ? 0 : part_of_none;
    if (round % 100 == 50) slope = on.best_none_by_length(weights, how.goal, part).slope;
    const slopes up = on.at(weights, on.best_none(weights, how.goal, part, slope), how.goal, part);
    for (std::size_t head = how.left_out; head < heads; ++head) {
      weights[head] = std::max(0.0, weights[head] + how.rate * (up.heads[head] - how.penalty));
    }
  }
  for (double& weight : weights) weight = weight < 1e-3 ? 0.0 : weight;
  return {{weights.begin(), weights.end()}, on.best_none_by_length(weights, how.goal)};
}

}  // namespace decode::retrieval

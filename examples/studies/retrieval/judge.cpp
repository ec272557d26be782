// SPDX-License-Identifier: Apache-2.0
#include "judge.hpp"

#include <algorithm>   // std::max, std::max_element, std::ranges::binary_search, std::ranges::sort, std::stable_sort
#include <cmath>       // std::ceil, std::log2
#include <functional>  // std::greater
#include <numeric>     // std::iota

namespace decode::retrieval {
namespace {

bool needs(const example& from, std::size_t id) { return std::ranges::binary_search(from.needed, id); }

judged_choice judge(const example& from, const voter_weights& weights) {
  const std::vector<double> probability = posterior(from, weights);
  const double none = probability.back();
  const auto needed = static_cast<double>(from.needed.size());
  judged_choice result{.weight = from.weight, .needed = needed};
  for (const double p : probability) result.entropy -= p > 0 ? p * std::log2(p) : 0.0;
  std::vector<std::size_t> order(from.segments);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return probability[a] > probability[b]; });
  result.none_wins = none > probability[order.front()];
  constexpr double least = 1e-9;  // a class that was not there to be learnt costs 30 bits, not all that there are
  if (from.needed.empty()) {
    result.bits = -std::log2(std::max(none, least));
    return result;
  }
  for (const std::size_t id : from.needed) {
    const double share = probability[id] * needed;
    result.bits -= std::log2(std::max(share + part_of_none * none, least)) / needed;
  }
  result.first = needs(from, order.front()) ? 1 : 0;
  double covered = 0, hit = 0;
  for (const std::size_t id : order) {
    if (result.taken == 4 || (result.taken > 0 && covered >= 0.9 * (1 - none))) break;
    covered += probability[id], result.taken += 1;
    hit += needs(from, id) ? 1 : 0;
  }
  result.in_set = hit / needed;
  return result;
}

}  // namespace

std::vector<judged_choice> judge(const std::vector<const example*>& examples, const voter_weights& weights) {
  std::vector<judged_choice> choices;
  for (const example* const item : examples) choices.push_back(judge(*item, weights));
  return choices;
}

found summary(const std::vector<judged_choice>& choices, double bound) {
  found sum;
  double missed = 0;
  for (const judged_choice& item : choices) {
    sum.bits += item.weight * item.bits, sum.gated += item.gated(bound) ? item.weight : 0;
    if (item.missed()) missed += item.weight, sum.caught += item.gated(bound) ? item.weight : 0;
    if (item.needed == 0) {
      sum.nothing += item.weight;
      continue;
    }
    sum.examples += item.weight;
    sum.first += item.weight * item.first, sum.in_set += item.weight * item.in_set,
        sum.taken += item.weight * item.taken;
  }
  const auto divide = [](double by, auto&... sums) { ((sums /= by > 0 ? by : 1), ...); };
  divide(sum.examples, sum.first, sum.in_set, sum.taken), divide(sum.examples + sum.nothing, sum.bits, sum.gated);
  sum.caught /= missed;
  return sum;
}

double area_of_unsureness(std::vector<judged_choice> choices) {
  std::erase_if(choices, [](const judged_choice& item) { return item.needed == 0; });
  std::ranges::sort(choices, {}, &judged_choice::unsureness);
  double missed = 0, found = 0, pairs = 0;  // of those that are surer
  for (std::size_t first = 0; first < choices.size();) {
    double missed_alike = 0, found_alike = 0;
    const double alike = choices[first].unsureness();
    for (; first < choices.size() && choices[first].unsureness() == alike; ++first) {
      (choices[first].missed() ? missed_alike : found_alike) += choices[first].weight;
    }
    pairs += missed_alike * (found + found_alike / 2);
    missed += missed_alike, found += found_alike;
  }
  return pairs / (missed * found);
}

double bound_by_needless(const std::vector<judged_choice>& choices, double share) {
  std::vector<judged_choice> list;
  double left = 0;  // that may be gated
  for (const judged_choice& item : choices) {
    if (item.needed == 0 || item.missed()) continue;
    list.push_back(item), left += share * item.weight;
  }
  std::ranges::sort(list, std::greater<>(), &judged_choice::unsureness);
  for (const judged_choice& item : list) {
    if (item.weight > left + 1e-9) return std::ceil(100 * item.unsureness()) / 100;
    left -= item.weight;
  }
  return 0;
}

best_heads judge_heads(const std::vector<const example*>& examples, const voter_weights& weights) {
  best_heads result;
  double sum = 0;
  for (const example* const from : examples) {
    if (from->needed.empty()) continue;
    std::vector<bool> named(from->segments);
    bool by_voter = false;
    for (std::size_t head = 0; head < weights.heads.size(); ++head) {
      const auto first = from->log_share.begin() + static_cast<std::ptrdiff_t>(head * from->segments);
      const auto last = first + static_cast<std::ptrdiff_t>(from->segments);
      const auto best = static_cast<std::size_t>(std::max_element(first, last) - first);
      named[best] = true;
      by_voter = by_voter || (weights.heads[head] > 0 && needs(*from, best));
    }
    double right = 0;
    for (const std::size_t id : from->needed) right = named[id] ? 1 : right;
    double others = 0;
    for (std::size_t id = 0; id < from->segments; ++id) others += named[id] && !needs(*from, id) ? 1 : 0;
    const std::size_t rest = from->segments - from->needed.size();
    sum += from->weight;
    result.of_all += from->weight * right, result.of_voters += by_voter ? from->weight : 0;
    result.by_chance += rest > 0 ? from->weight * others / static_cast<double>(rest) : 0;
  }
  result.of_all /= sum, result.of_voters /= sum, result.by_chance /= sum;
  return result;
}

}  // namespace decode::retrieval

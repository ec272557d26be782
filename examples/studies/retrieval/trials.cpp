// SPDX-License-Identifier: Apache-2.0
#include "trials.hpp"

#include <algorithm>  // std::ranges::any_of, std::ranges::find, std::ranges::stable_sort, std::rotate
#include <utility>    // std::move

namespace decode::retrieval {

std::vector<const example*> some(const std::vector<example>& examples, int half) {
  std::vector<const example*> chosen;
  for (const example& sample : examples) {
    if (half < 0 || sample.number % 2 == half) chosen.push_back(&sample);
  }
  return chosen;
}

trial judge_halves(const std::vector<example>& examples, std::size_t heads, const learning& how) {
  trial result;
  result.how = how, result.choices.resize(examples.size());
  for (int half = 0; half < 2; ++half) result.halves[half] = learn(some(examples, half), heads, how);
  for (std::size_t i = 0; i < examples.size(); ++i) {
    result.choices[i] = judge({&examples[i]}, result.halves[1 - examples[i].number % 2]).front();
  }
  return result;
}

std::vector<trial> try_ways(const std::vector<example>& examples, std::size_t heads, std::size_t first_layer,
                            const learning& how) {
  const bool several = std::ranges::any_of(examples, [](const example& sample) { return sample.needed.size() > 1; });
  std::vector<trial> tried;
  const auto add = [&](objective goal, std::size_t left_out) {
    learning way = how;
    way.goal = goal, way.left_out = left_out;
    tried.push_back(judge_halves(examples, heads, way));
  };
  for (const objective goal : {objective::each, objective::any}) {
    if (goal == objective::any && !several) continue;
    add(goal, first_layer);
    if (first_layer > 0 && first_layer < heads) add(goal, 0);
  }
  std::ranges::stable_sort(tried, {}, &trial::bits);
  const auto best_of = [&](objective goal) {
    return std::ranges::find(tried, goal, [](const trial& way) { return way.how.goal; });
  };
  const auto in_set = [](const trial& way) { return summary(way.choices, no_class).in_set; };
  if (several) {
    const auto each = best_of(objective::each), any = best_of(objective::any);
    const auto best = in_set(*each) < in_set(*any) ? any : each;
    std::rotate(tried.begin(), best, best + 1);
  }
  return tried;
}

}  // namespace decode::retrieval

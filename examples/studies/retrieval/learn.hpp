// SPDX-License-Identifier: Apache-2.0
// Weights of heads by multinomial logistic regression: of several segments one is needed, and each head has a share of
// each.
//
//   log likelihood = sum over examples of weight * ln softmax(sum over heads of w * share)[target]
//                    / sum of the examples' weights - penalty * sum of w,   w >= 0
#pragma once

#include <zoomr/core/types.hpp>

#include <cstddef>  // std::size_t
#include <string>   // std::string
#include <vector>   // std::vector

namespace decode::retrieval {

using zoomr::index_t;

/// What the heads have made of one moment of a problem.
struct example {
  std::string group;             // task and tokens, for the table
  index_t number = 0;            // of the problem
  double weight = 1;             // of all examples of one problem together 1
  std::size_t target = 0;        // the segment that is needed
  std::size_t segments = 0;      // that could be chosen
  std::vector<float> log_share;  // [heads, segments]  at least -87
};

struct learning {
  double penalty = 0.02;  // the larger, the fewer heads
  double rate = 0.05;
  int rounds = 1500;
};

/// @param examples  all with the same number of heads, one at least
/// @return  [heads]; what is below 1e-3 is 0
/// @cost    rounds * heads * segments of all examples
std::vector<float> learn(const std::vector<const example*>& examples, std::size_t heads, const learning& how = {});

/// How good weights are.
struct found {
  double examples = 0;  // by weight, as all that follows
  double first = 0;     // the segment that is needed is first
  double in_set =
      0;  // of what is needed, what is in the smallest set with nine tenths of the posterior, of at most four
  double taken = 0;  // segments of that set
};
found judge(const std::vector<const example*>& examples, const std::vector<float>& weights);

}  // namespace decode::retrieval

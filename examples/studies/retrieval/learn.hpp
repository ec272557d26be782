// SPDX-License-Identifier: Apache-2.0
// Weights of heads by multinomial logistic regression: of several segments one is needed, and each head has a share of
// each.
//
//   log likelihood = sum over examples of ln softmax(sum over heads of weight * share)[target] / examples
//                    - penalty * sum of weights,   weights >= 0
#pragma once

#include <zoomr/core/types.hpp>

#include <cstddef>  // std::size_t
#include <string>   // std::string
#include <vector>   // std::vector

namespace decode::retrieval {

/// What the heads have made of one problem.
struct example {
  std::string of;                // task and tokens, for the table
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
  int problems = 0;
  int first = 0;     // the segment that is needed is first
  int in_set = 0;    // or in the smallest set with nine tenths of the posterior, of at most four
  double taken = 0;  // segments of that set, mean
};
found judge(const std::vector<const example*>& examples, const std::vector<float>& weights);

}  // namespace decode::retrieval

// SPDX-License-Identifier: Apache-2.0
// Ways to learn weights, each judged on problems that it has not learnt on.
#pragma once

#include <string>  // std::string
#include <vector>  // std::vector

#include "judge.hpp"
#include "learn.hpp"

namespace decode::retrieval {

/// One way to learn. Problems with an even number are judged by the weights of those with an odd one, and the other way
/// round.
struct trial {
  learning how;
  voter_weights halves[2];             // learnt on even numbers; on odd ones
  std::vector<judged_choice> choices;  // [examples]

  double bits() const { return summary(choices, no_class).bits; }
};

/// Of the problems with an even number (0) or an odd one (1), or of all (-1).
std::vector<const example*> some(const std::vector<example>& examples, int half = -1);

/// @pre  each half has an example in which something is needed
trial judge_halves(const std::vector<example>& examples, std::size_t heads, const learning& how);

/// All ways that can differ: either objective where several segments are needed, with the heads of the first layer and
/// without. The best is first: the objective that has more of what is needed in its sets, with the layers that make
/// fewer bits.
/// @param first_layer  heads of the first layer, the first ones; 0: the model's first layer is not among those that
///                     are learnt of
/// @pre   as of `judge_halves`
std::vector<trial> try_ways(const std::vector<example>& examples, std::size_t heads, std::size_t first_layer,
                            const learning& how);

}  // namespace decode::retrieval

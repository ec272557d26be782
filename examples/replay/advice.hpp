// SPDX-License-Identifier: Apache-2.0
// --advise: policies to try on a trace, and which of them no other beats.
#pragma once

#include <ostream>  // std::ostream
#include <string>   // std::string
#include <vector>   // std::vector

#include "replay.hpp"

namespace replay {

/// Presets that can work on a trace, each with the budgets that it takes: a sixteenth, an eighth, a quarter and half
/// of the tokens.
/// @param voters  weights of heads that vote are known
std::vector<std::string> policies_to_try(const trace& from, bool voters);

/// Why other presets are not among them, in a sentence; empty: there are no others.
std::string not_tried(const trace& from, bool voters);

/// What a policy costs, beside its error.
struct policy_cost {
  double error = 0;              // of outputs, mean
  zoomr::byte_count device = 0;  // the most that a step needs there, accounted; 0 over tiers, where all have the same
  double moved = 0;              // over tiers: bytes that came to memory for each token after the prompt

  /// Not worse in anything, and better in something.
  bool beats(const policy_cost& other) const;
};
policy_cost cost_of(const replay_result& result);

/// Places of those that no other beats, by rising error, among those that left out something or are the baseline.
std::vector<std::size_t> pareto_front(const std::vector<replay_result>& results);

/// C++ that makes the policy: the preset, and each option that differs from it.
std::string cpp_value(const decode::policy_choice& choice);

/// @param policies  of the results
void print_advice(std::ostream& out, const std::vector<named_policy>& policies,
                  const std::vector<replay_result>& results);

}  // namespace replay

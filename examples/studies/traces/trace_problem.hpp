// SPDX-License-Identifier: Apache-2.0
// Problems that a model solves in a long text of its own, whose truth is known step by step.
//
//   program  a small Python program is executed line by line: sums, branches, a list
//   ledger   accounts of several people are kept through a list of transfers
//
// The text has a line for each step. Some lines are a thought, which one line sums up. In the end the text is asked for
// values that stand in the middle of earlier thoughts.
#pragma once

#include <zoomr/core/types.hpp>

#include <cstdint>      // std::uint64_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "../retrieval/draws.hpp"

namespace decode::traces {

using retrieval::dice;
using zoomr::index_t;

enum class task : std::uint8_t { program, ledger };

/// @throws input_error  there is no such task
task task_named(std::string_view name);
const char* name_of(task kind);

struct step {
  std::string said;             // names the step: "Line 3: k = n - m."
  std::string worked;           // what is written behind it, if it is right; empty: nothing is
  std::vector<int> values;      // that it computes, in the order of its sentences
  std::vector<index_t> reads;   // steps whose values it needs
  std::vector<std::string> of;  // whose values they are: "k"
};

struct question {
  std::string said;  // up to the value
  int value = 0;
  std::vector<index_t> reads;  // the step that says it
  std::size_t of = 0;          // which of its values
};

struct trace_problem {
  std::string user;  // the message that poses it
  std::vector<step> steps;
  index_t per_thought = 3;             // steps
  std::vector<std::string> cues;       // [thoughts]  how the summary begins: "Lines 4 to 6"
  std::vector<std::string> summaries;  // [thoughts]  how it might go on
  std::vector<question> questions;
};

inline constexpr index_t fewest_steps = 8, most_steps = 60;

/// @param steps  of the text, fewest_steps to most_steps
/// @param seed   the same gives the same problem
trace_problem make_problem(task kind, index_t steps, index_t per_thought, std::uint64_t seed);
/// A short one of the same form, always the same, to be shown with its text before the one that is to be solved.
trace_problem worked_example(task kind, index_t per_thought);

/// The numbers that a line comes to: the last one of each of its last sentences that have any.
/// @param count  of sentences; fewer are returned where the line has fewer
std::vector<int> results_of(std::string_view line, std::size_t count);
/// The first number; false if there is none.
bool first_number(std::string_view text, int& number);

namespace detail {

// program.cpp, accounts.cpp
trace_problem make_program(index_t steps, dice& random);
trace_problem make_ledger(index_t steps, dice& random);

/// "a", "a and b", "a, b and c", each once.
std::string listed(const std::vector<std::string>& names);

}  // namespace detail

}  // namespace decode::traces

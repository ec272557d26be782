// SPDX-License-Identifier: Apache-2.0
#include "trace_problem.hpp"

#include <algorithm>  // std::min, std::ranges::find, std::reverse
#include <cctype>     // std::isdigit

#include "../../decode/input_error.hpp"

namespace decode::traces {
namespace {

constexpr std::size_t most_questions = 3;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Calls visit(number) with each number of a text, from left to right.
template <class Visit>
void each_number(std::string_view text, Visit visit) {
  for (std::size_t at = 0; at < text.size();) {
    if (!is_digit(text[at])) {
      ++at;
      continue;
    }
    // the sign of a number, not of a difference: "= -5", but neither "12 - 5" nor "12-5"
    const bool negative =
        at >= 1 && text[at - 1] == '-' && (at == 1 || !(is_digit(text[at - 2]) || text[at - 2] == ']'));
    int number = 0;
    for (int count = 0; at < text.size() && is_digit(text[at]); ++at, ++count) {
      if (count < 8) number = 10 * number + (text[at] - '0');
    }
    visit(negative ? -number : number);
  }
}

// What names a thought, and the values that it has.
void add_summaries(trace_problem& asked, const char* first, const char* several, const char* verb) {
  const auto steps = static_cast<index_t>(asked.steps.size());
  for (index_t begin = 0; begin < steps; begin += asked.per_thought) {
    const index_t end = std::min(begin + asked.per_thought, steps);
    std::vector<std::string> names;
    for (index_t i = begin; i < end; ++i) {
      for (const std::string& name : asked.steps[static_cast<std::size_t>(i)].of) {
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
      }
    }
    asked.cues.push_back(end - begin > 1
                             ? std::string(several) + std::to_string(begin + 1) + " to " + std::to_string(end)
                             : std::string(first) + std::to_string(end));
    asked.summaries.push_back(std::string(" ") + verb + ' ' + detail::listed(names) + ".\n");
  }
}

// Of values that are computed, not by the last line of a thought, nor in the last thought.
void add_questions(trace_problem& asked, task kind, std::size_t most, dice& random) {
  const auto steps = static_cast<index_t>(asked.steps.size());
  std::vector<index_t> possible;
  for (index_t i = 0; i < steps; ++i) {
    const bool is_last = (i + 1) % asked.per_thought == 0 && asked.per_thought > 1;
    const bool is_late = i / asked.per_thought >= (steps - 1) / asked.per_thought;
    if (!is_last && !is_late && !asked.steps[static_cast<std::size_t>(i)].worked.empty()) possible.push_back(i);
  }
  for (const std::size_t at : retrieval::some_of(possible.size(), std::min(most, possible.size()), random)) {
    const index_t number = possible[at];
    const step& line = asked.steps[static_cast<std::size_t>(number)];
    const std::size_t of = retrieval::below(line.values.size(), random);
    const std::string place = (kind == task::program ? "line " : "note ") + std::to_string(number + 1);
    const std::string said = kind == task::program
                                 ? "What was the value of " + line.of[of] + " right after " + place + "? Right after " +
                                       place + " the value of " + line.of[of] + " was"
                                 : "How many coins did " + line.of[of] + " have right after " + place +
                                       "? Right after " + place + ' ' + line.of[of] + " had";
    asked.questions.push_back({said, line.values[of], {number}, of});
  }
}

trace_problem finished(trace_problem asked, task kind, index_t per_thought, std::size_t questions, dice& random) {
  asked.per_thought = per_thought;
  if (kind == task::program) {
    add_summaries(asked, "Line ", "Lines ", "set");
  } else {
    add_summaries(asked, "Note ", "Notes ", "change the coins of");
  }
  add_questions(asked, kind, questions, random);
  return asked;
}

trace_problem drafted(task kind, index_t steps, dice& random) {
  return kind == task::program ? detail::make_program(steps, random) : detail::make_ledger(steps, random);
}

}  // namespace

task task_named(std::string_view name) {
  if (name == "program") return task::program;
  if (name == "ledger") return task::ledger;
  fail("there is no task ", shown(name), "; known are program, ledger");
}
const char* name_of(task kind) { return kind == task::program ? "program" : "ledger"; }

trace_problem make_problem(task kind, index_t steps, index_t per_thought, std::uint64_t seed) {
  dice random(seed * 1000003 + static_cast<std::uint64_t>(kind));
  trace_problem asked = drafted(kind, steps, random);
  return finished(std::move(asked), kind, per_thought, most_questions, random);
}

trace_problem worked_example(task kind, index_t per_thought) {
  dice random(kind == task::program ? 14 : 10);  // these have steps of most forms
  trace_problem asked = drafted(kind, fewest_steps, random);
  return finished(std::move(asked), kind, per_thought, 1, random);
}

std::vector<int> results_of(std::string_view line, std::size_t count) {
  std::vector<int> last;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find('.'), line.size());
    bool any = false;
    int number = 0;
    each_number(line.substr(0, end), [&](int one) { number = one, any = true; });
    if (any) last.push_back(number);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  if (last.size() > count) last.erase(last.begin(), last.end() - static_cast<std::ptrdiff_t>(count));
  return last;
}

bool first_number(std::string_view text, int& number) {
  bool found = false;
  each_number(text, [&](int one) {
    if (!found) number = one;
    found = true;
  });
  return found;
}

std::string detail::listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace decode::traces

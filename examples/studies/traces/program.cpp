// SPDX-License-Identifier: Apache-2.0
// Programs of assignments: constants first, then sums, differences, doubles, branches, and a list. No value
// is below 0 or above 99.
#include <array>     // std::array
#include <iterator>  // std::advance
#include <map>       // std::map

#include "trace_problem.hpp"

namespace decode::traces {
namespace {

using retrieval::below;

constexpr index_t constants = 3;  // lines with which a program begins
constexpr int largest_value = 99;

class program {
 public:
  explicit program(dice& random) : random_(random) {}

  trace_problem make(index_t lines) {
    for (index_t i = 0; i < constants; ++i) {
      const std::string name = names[static_cast<std::size_t>(i)];
      const int value = static_cast<int>(2 + below(18, random_));
      add(name + " = " + std::to_string(value), "", {}, name, value);
    }
    const auto list_at = static_cast<index_t>(constants + 2);
    while (static_cast<index_t>(asked_.steps.size()) < lines) {
      if (static_cast<index_t>(asked_.steps.size()) == list_at) {
        add_list();
      } else {
        add_line();
      }
    }
    asked_.user = "Execute this Python program line by line.";
    for (std::size_t i = 0; i < code_.size(); ++i) asked_.user += "\nLine " + std::to_string(i + 1) + ": " + code_[i];
    return asked_;
  }

 private:
  struct variable {
    int value = 0;
    index_t set_by = 0;
  };

  static constexpr std::array names = {"apples", "boxes", "coins", "doors", "eggs", "forks",
                                       "hats",   "keys",  "lamps", "maps",  "pens", "rings"};

  void add(const std::string& code, const std::string& worked, std::vector<index_t> reads, const std::string& name,
           int value) {
    const auto number = static_cast<index_t>(asked_.steps.size());
    const std::string said = "Line " + std::to_string(number + 1) + ": " + code + '.';
    asked_.steps.push_back({worked.empty() ? said + '\n' : said, worked, {value}, std::move(reads), {name}});
    code_.push_back(code);
    known_[name] = {value, number};
  }
  void add_list() {
    std::string code = "days = [";
    const auto number = static_cast<index_t>(asked_.steps.size());
    for (int i = 0; i < 3; ++i) {
      const int value = static_cast<int>(2 + below(18, random_));
      code += (i > 0 ? ", " : "") + std::to_string(value);
      if (i == 0) known_["days[0]"] = {value, number};  // the only one that is read
    }
    code += ']';
    asked_.steps.push_back({"Line " + std::to_string(number + 1) + ": " + code + ".\n", "", {}, {}, {"days"}});
    code_.push_back(code);
  }

  std::string some_known() {
    auto at = known_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(below(known_.size(), random_)));
    return at->first;
  }
  // Of four lines three set a variable that no line has set, as long as there are such.
  std::string some_goal() {
    std::vector<std::string> fresh;
    for (const char* const name : names) {
      if (!known_.contains(name)) fresh.emplace_back(name);
    }
    return fresh.empty() || below(4, random_) == 0 ? some_known() : fresh[below(fresh.size(), random_)];
  }

  // One that has a value in range; other draws are dropped.
  void add_line() {
    for (;;) {
      const std::string goal = some_goal(), one = some_known(), other = some_known();
      if (one == other) continue;
      const variable x = known_[one], y = known_[other];
      const std::string first = std::to_string(x.value), second = std::to_string(y.value);
      const std::string here = " Here " + one + " is " + first, both = here + " and " + other + " is " + second;
      const std::size_t form = below(8, random_);
      if (form < 4) {
        const bool adds = form < 2;
        const char* const sign = adds ? " + " : " - ";
        const int value = adds ? x.value + y.value : x.value - y.value;
        if (!possible(value)) continue;
        return add(goal + " = " + one + sign + other, both + ", so " + result(goal, first + sign + second, value),
                   {x.set_by, y.set_by}, goal, value);
      }
      if (form == 4) {
        const bool holds = x.value > y.value;
        const int value = holds ? x.value : y.value;
        return add(goal + " = " + one + " if " + one + " > " + other + " else " + other,
                   both + ", and " + first + " > " + second + (holds ? " is true, so " : " is false, so ") +
                       result(goal, holds ? one : other, value),
                   {x.set_by, y.set_by}, goal, value);
      }
      const int number = form == 5 ? 2 : static_cast<int>(2 + below(8, random_));
      const int value = form == 5 ? x.value * number : x.value + number;
      if (!possible(value)) continue;
      const std::string sum = (form == 5 ? " * " : " + ") + std::to_string(number);
      return add(goal + " = " + one + sum, here + ", so " + result(goal, first + sum, value), {x.set_by}, goal, value);
    }
  }
  static bool possible(int value) { return value >= 0 && value <= largest_value; }
  static std::string result(const std::string& goal, const std::string& sum, int value) {
    return goal + " = " + sum + " = " + std::to_string(value) + ".\n";
  }

  dice& random_;
  trace_problem asked_;
  std::vector<std::string> code_;
  std::map<std::string, variable> known_;
};

}  // namespace

trace_problem detail::make_program(index_t steps, dice& random) { return program(random).make(steps); }

}  // namespace decode::traces

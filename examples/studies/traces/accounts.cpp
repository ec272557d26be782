// SPDX-License-Identifier: Apache-2.0
// Ledgers: what each of some people has in the beginning, and then what they get and pay.
#include <array>  // std::array

#include "trace_problem.hpp"

namespace decode::traces {
namespace {

using retrieval::below;

constexpr std::array people = {"Ann", "Bob", "Cleo", "Dan", "Eve"};
constexpr std::size_t fewest = 4;
constexpr int largest = 99;

struct account {
  int coins = 0;
  index_t set_by = 0;
};

}  // namespace

trace_problem detail::make_ledger(index_t steps, dice& random) {
  trace_problem asked;
  asked.user = "Keep the accounts of some people, note by note.";
  std::vector<account> of(steps < 16 ? fewest : people.size());
  const auto add = [&](const std::string& told, const std::string& worked, std::vector<index_t> reads,
                       const std::vector<std::size_t>& who) {
    const auto number = static_cast<index_t>(asked.steps.size());
    const std::string said = "Note " + std::to_string(number + 1) + ": " + told + '.';
    step one{worked.empty() ? said + '\n' : said, worked, {}, std::move(reads), {}};
    for (const std::size_t person : who) {
      one.values.push_back(of[person].coins), one.of.emplace_back(people[person]);
      of[person].set_by = number;
    }
    asked.steps.push_back(std::move(one));
    asked.user += '\n' + said;
  };
  // " had 12, 12 - 4 = 8, so now Ann has 8."
  const auto change = [&](std::size_t person, int coins) {
    const std::string had = std::to_string(of[person].coins), who = people[person];
    of[person].coins += coins;
    const std::string has = std::to_string(of[person].coins);
    return had + (coins < 0 ? " - " : " + ") + std::to_string(coins < 0 ? -coins : coins) + " = " + has + ", so now " +
           who + " has " + has + ".\n";
  };
  for (std::size_t person = 0; person < of.size(); ++person) {
    of[person].coins = static_cast<int>(10 + below(30, random));
    add(std::string(people[person]) + " has " + std::to_string(of[person].coins) + " coins", "", {}, {person});
  }
  while (static_cast<index_t>(asked.steps.size()) < steps) {
    const std::size_t one = below(of.size(), random), other = below(of.size(), random), form = below(5, random);
    const bool copies = form == 0, gets = form < 3;
    const int coins = copies ? of[other].coins : static_cast<int>(2 + below(18, random));
    if (copies && (one == other || coins == 0)) continue;
    if (gets ? of[one].coins + coins > largest : of[one].coins < coins) continue;
    const std::string who = people[one];
    const std::string had = ' ' + who + " had " + std::to_string(of[one].coins);
    std::vector<index_t> reads = {of[one].set_by};
    if (copies) {
      reads.push_back(of[other].set_by);
      const std::string also = " and " + std::string(people[other]) + " has " + std::to_string(coins) + ", ";
      const std::string sum = change(one, coins);
      add(who + " gets as many coins as " + people[other] + " has", had + also + sum, std::move(reads), {one});
    } else {
      const std::string sum = change(one, gets ? coins : -coins);
      add(who + (gets ? " gets " : " pays ") + std::to_string(coins) + " coins", had + ", " + sum, std::move(reads),
          {one});
    }
  }
  return asked;
}

}  // namespace decode::traces

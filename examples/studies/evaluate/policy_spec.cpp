// SPDX-License-Identifier: Apache-2.0
#include "policy_spec.hpp"

#include <cstddef>  // std::size_t

#include "../../decode/numbers.hpp"

namespace decode {

policy_choice read_policy(const std::string& spec) {
  policy_choice choice;
  std::size_t plus = spec.find('+');
  choice.name = spec.substr(0, plus);
  while (plus != std::string::npos) {
    const std::size_t next = spec.find('+', plus + 1);
    choice.settings.push_back(spec.substr(plus + 1, next - plus - 1));
    plus = next;
  }
  if (const std::size_t at = choice.name.find('@'); at != std::string::npos) {
    const std::string budget = choice.name.substr(at + 1);
    const auto tokens = whole_number<index_t>(budget, 1, zoomr::unlimited);
    if (!tokens) {
      fail("--policies ", spec, ": after @ there must be a budget, which ",
           wrong_number(budget, index_t{1}, zoomr::unlimited));
    }
    choice.budget = *tokens;
    choice.name.resize(at);
  }
  return choice;
}

}  // namespace decode

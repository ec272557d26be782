// SPDX-License-Identifier: Apache-2.0
#include "policy_spec.hpp"

#include <cstddef>  // std::ptrdiff_t, std::size_t

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

std::string take_setting(policy_choice& choice, const std::string& name) {
  std::vector<std::string>& settings = choice.settings;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const std::string setting = settings[i];
    if (!setting.starts_with(name) || setting.size() <= name.size() + 1 || setting[name.size()] != '=') continue;
    settings.erase(settings.begin() + static_cast<std::ptrdiff_t>(i));
    return setting.substr(name.size() + 1);
  }
  return "";
}

}  // namespace decode

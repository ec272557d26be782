// SPDX-License-Identifier: Apache-2.0
// A policy in one word of a command line: "quest@128+fixed_pages.longest=32".
#pragma once

#include <string>  // std::string
#include <vector>  // std::vector

#include "../../decode/input_error.hpp"
#include "../../decode/policies.hpp"

namespace decode {

/// "name[@budget][+component.field=value]...": the policy, its budget (0 if not given), and settings of its own.
/// @throws input_error
policy_choice read_policy(const std::string& spec);

/// Takes "name=value" out of the settings of a policy.
/// @return  the value; empty if it is not among them
std::string take_setting(policy_choice& choice, const std::string& name);

/// Refuses settings that name nothing of a policy.
/// @param spec        as the command line says the policy, with `own` settings behind it
/// @param everywhere  settings of --set, which each policy must have
template <class Policy>
void expect_options(const Policy& policy, const std::string& spec, const policy_choice& own,
                    const std::vector<std::string>& everywhere) {
  Policy tried = policy;
  for (const std::string& setting : everywhere) {
    if (apply(tried, {setting}) > 0) continue;
    fail("--set ", setting, ": ", own.name, " has no such option, but ", option_names(policy),
         "; what only some policies have is written behind them, as in quest@1024+fixed_pages.longest=32");
  }
  for (const std::string& setting : own.settings) {
    if (apply(tried, {setting}) > 0) continue;
    fail(spec, ": ", own.name, " has no option ", shown(setting), ", but ", option_names(policy));
  }
}

}  // namespace decode

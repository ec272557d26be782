// SPDX-License-Identifier: Apache-2.0
// Policies by name: what a command line says becomes a value of a type known at compile time.
#pragma once

#include <zoomr/presets/table.hpp>

#include <iosfwd>   // std::ostream
#include <string>   // std::string
#include <variant>  // std::variant
#include <vector>   // std::vector

#include "input_error.hpp"
#include "policy_choice.hpp"

namespace decode {

/// A field of a policy that a setting names.
struct policy_option {
  using pointer = std::variant<bool*, index_t*, float*, zoomr::scope*, zoomr::pool*, zoomr::summaries_attended*>;
  std::string name;  // component.field
  pointer field;
};
using policy_options = std::vector<policy_option>;

/// Prints the value of a field as it is read.
void print_field(std::ostream& out, zoomr::scope field);
void print_field(std::ostream& out, zoomr::pool field);
void print_field(std::ostream& out, zoomr::summaries_attended field);

namespace detail {

void add_option(policy_options& all, const std::string& name, policy_option::pointer field);
void expect_no_less(const policy_choice& choice, index_t least_budget);
void expect_possible(const policy_choice& choice, const char* problem);

/// @throws input_error  there is no policy of that name
[[noreturn]] void refuse_name(const std::string& name);

}  // namespace detail

/// Those of `policy`, which must outlive them.
template <class Policy>
policy_options options_of(Policy& policy) {
  policy_options all;
  zoomr::each_option(policy, [&](const std::string& name, auto& field) { detail::add_option(all, name, &field); });
  return all;
}

/// "zones.sinks=4 zones.recent=64 ..."
std::string describe_options(const policy_options& all);
template <class Policy>
std::string describe(Policy policy) {
  return describe_options(options_of(policy));
}

/// Applies the settings that name a field of this policy.
/// @return how many did
int set_options(const policy_options& all, const std::vector<std::string>& settings);
template <class Policy>
int apply(Policy& policy, const std::vector<std::string>& settings) {
  return set_options(options_of(policy), settings);
}

/// "zones.sinks, zones.recent, ...": what --set can set of a policy.
std::string names_of_options(const policy_options& all);
template <class Policy>
std::string option_names(Policy policy) {
  return names_of_options(options_of(policy));
}

/// Whether a number sets how much a preset attends to: not of `full`.
inline bool takes_budget(const std::string& name) {
  bool takes = true;
  zoomr::presets::with_name(name, [&](const auto& preset) { takes = std::string(preset.limits) != "nothing"; });
  return takes;
}

/// Calls visit(policy) with the policy of that name, its budget and settings applied.
/// @throws  input_error if there is no such policy, or if its options cannot work together
template <class Visit>
void with_policy(const policy_choice& choice, Visit visit) {
  if (choice.budget < 0) fail("the budget is ", choice.budget, ", but must be at least 1");
  const bool known = zoomr::presets::with_name(choice.name, [&](const auto& preset) {
    auto policy = preset.policy;
    apply(policy, choice.settings);  // what a budget means may depend on them
    detail::expect_no_less(choice, preset.least_budget(policy));
    policy = preset.with_budget(policy, choice.budget);
    apply(policy, choice.settings);
    detail::expect_possible(choice, policy.problem());
    visit(policy);
  });
  if (!known) detail::refuse_name(choice.name);
}

}  // namespace decode

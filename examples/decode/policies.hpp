// SPDX-License-Identifier: Apache-2.0
// Policies by name: what a command line says becomes a value of a type known at compile time.
#pragma once

#include <zoomr/presets/table.hpp>

#include <ostream>      // std::ostream
#include <sstream>      // std::ostringstream
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "input_error.hpp"
#include "policy_choice.hpp"

namespace decode {

namespace detail {

/// Reads the value of a field, of each type that fields have.
/// @param setting  for the complaint: "component.field=value"
/// @throws input_error
void parse_field(bool& field, std::string_view text, std::string_view setting);
void parse_field(index_t& field, std::string_view text, std::string_view setting);
void parse_field(float& field, std::string_view text, std::string_view setting);
void parse_field(zoomr::scope& field, std::string_view text, std::string_view setting);
void parse_field(zoomr::pool& field, std::string_view text, std::string_view setting);
void parse_field(zoomr::summaries_attended& field, std::string_view text, std::string_view setting);

/// Prints it as it is read.
void print_field(std::ostream& out, bool field);
void print_field(std::ostream& out, index_t field);
void print_field(std::ostream& out, float field);
void print_field(std::ostream& out, zoomr::scope field);
void print_field(std::ostream& out, zoomr::pool field);
void print_field(std::ostream& out, zoomr::summaries_attended field);

/// @throws input_error  there is no policy of that name
[[noreturn]] void refuse_name(const std::string& name);

/// Sets the field if "name=value" is a setting of it.
template <class Field>
bool set_if_named(const std::string& name, Field& field, const std::string& setting) {
  if (!setting.starts_with(name) || setting[name.size()] != '=') return false;
  parse_field(field, std::string_view(setting).substr(name.size() + 1), setting);
  return true;
}

}  // namespace detail

/// "zones.sinks=4 zones.recent=64 ..."
template <class Policy>
std::string describe(const Policy& policy) {
  std::ostringstream out;
  zoomr::each_option(policy, [&](const std::string& name, const auto& value) {
    out << (out.tellp() > 0 ? " " : "") << name << '=';
    detail::print_field(out, value);
  });
  return out.str();
}

/// Applies the settings that name a field of this policy.
/// @return how many did
template <class Policy>
int apply(Policy& policy, const std::vector<std::string>& settings) {
  int applied = 0;
  for (const std::string& setting : settings) {
    if (setting.find('=') == std::string::npos) fail("--set ", setting, ": it must be component.field=value");
    zoomr::each_option(policy, [&](const std::string& name, auto& field) {
      applied += detail::set_if_named(name, field, setting) ? 1 : 0;
    });
  }
  return applied;
}

/// "zones.sinks, zones.recent, ...": what --set can set of a policy.
template <class Policy>
std::string option_names(const Policy& policy) {
  std::string out;
  zoomr::each_option(policy, [&](const std::string& name, const auto&) { out += (out.empty() ? "" : ", ") + name; });
  return out;
}

/// Calls visit(policy) with the policy of that name, its budget and settings applied.
/// @throws  input_error if there is no such policy, or if its options cannot work together
template <class Visit>
void with_policy(const policy_choice& choice, Visit visit) {
  if (choice.budget < 0) fail("the budget is ", choice.budget, ", but must be at least 1");
  const bool known = zoomr::presets::with_name(choice.name, [&](const auto& preset) {
    auto policy = preset.policy;
    apply(policy, choice.settings);  // what a budget means may depend on them
    const index_t least = preset.least_budget(policy);
    if (choice.budget > 0 && choice.budget < least)
      fail(choice.name, ": the budget is ", choice.budget, ", but must be at least ", least);
    policy = preset.with_budget(policy, choice.budget);
    apply(policy, choice.settings);
    if (const char* problem = policy.problem()) fail(choice.name, ": ", problem);
    visit(policy);
  });
  if (!known) detail::refuse_name(choice.name);
}

}  // namespace decode

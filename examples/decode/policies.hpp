// SPDX-License-Identifier: Apache-2.0
// Policies by name: what a command line says becomes a value of a type known at compile time.
#pragma once

#include <zoomr/presets/table.hpp>

#include <charconv>     // std::from_chars
#include <cmath>        // std::isfinite
#include <span>         // std::span
#include <sstream>      // std::ostringstream
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_floating_point_v, std::is_same_v
#include <vector>       // std::vector

#include "input_error.hpp"

namespace decode {

using zoomr::index_t;

/// A policy as the command line gives it.
struct policy_choice {
  std::string name;
  index_t budget = 0;                 // 0: the preset's own
  std::vector<std::string> settings;  // component.field=value
};

namespace detail {

template <class T>
T parse_number(std::string_view text, std::string_view setting) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool fits = error == std::errc() && end == text.data() + text.size();
  if constexpr (std::is_floating_point_v<T>) fits = fits && std::isfinite(value);
  if (!fits) fail("--set ", setting, ": ", shown(text), " is not a number that fits");
  return value;
}

/// The value whose name is `text`, of the names given in the order of the enumerators.
template <class Enum>
Enum parse_name(std::string_view text, std::string_view setting, std::span<const std::string_view> names) {
  int value = 0;
  for (const std::string_view name : names) {
    if (name == text) return static_cast<Enum>(value);
    ++value;
  }
  fail("--set ", setting, ": ", shown(text), " is not one of its values");
}

inline constexpr std::string_view scope_names[] = {"sequence", "layer", "kv_head", "head"};
inline constexpr std::string_view pool_names[] = {"mean", "max"};
inline constexpr std::string_view summaries_names[] = {"all", "candidates"};
inline constexpr std::string_view truths[] = {"false", "true"};

template <class Field>
void parse_field(Field& field, std::string_view text, std::string_view setting) {
  if constexpr (std::is_same_v<Field, bool>) {
    field = parse_name<int>(text, setting, truths) != 0;
  } else if constexpr (std::is_same_v<Field, index_t>) {
    field = text == "unlimited" ? zoomr::unlimited : parse_number<index_t>(text, setting);
  } else if constexpr (std::is_same_v<Field, float>) {
    field = parse_number<float>(text, setting);
  } else if constexpr (std::is_same_v<Field, zoomr::scope>) {
    field = parse_name<Field>(text, setting, scope_names);
  } else if constexpr (std::is_same_v<Field, zoomr::pool>) {
    field = parse_name<Field>(text, setting, pool_names);
  } else {
    static_assert(std::is_same_v<Field, zoomr::summaries_attended>, "a field of a type without names");
    field = parse_name<Field>(text, setting, summaries_names);
  }
}

/// Sets the field if "name=value" is a setting of it.
template <class Field>
bool set_if_named(const std::string& name, Field& field, const std::string& setting) {
  if (!setting.starts_with(name) || setting[name.size()] != '=') return false;
  parse_field(field, std::string_view(setting).substr(name.size() + 1), setting);
  return true;
}

template <class Field>
void print_field(std::ostream& out, const std::string& option, const Field& field) {
  out << (out.tellp() > 0 ? " " : "") << option << '=';
  const auto name = [&](std::span<const std::string_view> names) { out << names[static_cast<std::size_t>(field)]; };
  if constexpr (std::is_same_v<Field, bool>) {
    name(truths);
  } else if constexpr (std::is_same_v<Field, index_t>) {
    if (field == zoomr::unlimited)
      out << "unlimited";
    else
      out << field;
  } else if constexpr (std::is_same_v<Field, float>) {
    out << field;
  } else if constexpr (std::is_same_v<Field, zoomr::scope>) {
    name(scope_names);
  } else if constexpr (std::is_same_v<Field, zoomr::pool>) {
    name(pool_names);
  } else {
    name(summaries_names);
  }
}

}  // namespace detail

/// "zones.sinks=4 zones.recent=64 ..."
template <class Policy>
std::string describe(const Policy& policy) {
  std::ostringstream out;
  zoomr::each_option(policy,
                     [&](const std::string& name, const auto& value) { detail::print_field(out, name, value); });
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
  if (known) return;
  std::string names;
  zoomr::presets::each([&](const auto& preset) { (names += names.empty() ? "" : ", ") += preset.name; });
  fail("there is no policy ", shown(choice.name), "; known are ", names);
}

}  // namespace decode

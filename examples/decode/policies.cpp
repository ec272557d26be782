// SPDX-License-Identifier: Apache-2.0
#include "policies.hpp"

#include <charconv>     // std::from_chars
#include <cmath>        // std::isfinite
#include <ostream>      // std::ostream
#include <span>         // std::span
#include <sstream>      // std::ostringstream
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_floating_point_v

namespace decode {
namespace {

template <class T>
T parse_number(std::string_view text, std::string_view setting) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool fits = error == std::errc() && end == text.data() + text.size();
  if constexpr (std::is_floating_point_v<T>) fits = fits && std::isfinite(value);
  if (!fits) fail("--set ", setting, ": ", shown(text), " is not a number that fits");
  return value;
}

// The value whose name is `text`, of the names given in the order of the enumerators.
template <class Enum>
Enum parse_name(std::string_view text, std::string_view setting, std::span<const std::string_view> names) {
  int value = 0;
  for (const std::string_view name : names) {
    if (name == text) return static_cast<Enum>(value);
    ++value;
  }
  fail("--set ", setting, ": ", shown(text), " is not one of its values");
}

constexpr std::string_view scope_names[] = {"sequence", "layer", "kv_head", "head"};
constexpr std::string_view pool_names[] = {"mean", "max"};
constexpr std::string_view summaries_names[] = {"all", "candidates"};
constexpr std::string_view truths[] = {"false", "true"};

// Reads the value of a field, of each type that fields have; `setting` is for the complaint: "component.field=value".
void parse_field(bool& field, std::string_view text, std::string_view setting) {
  if (text == "on" || text == "off") text = truths[text == "on" ? 1 : 0];
  field = parse_name<int>(text, setting, truths) != 0;
}
void parse_field(index_t& field, std::string_view text, std::string_view setting) {
  field = text == "unlimited" ? zoomr::unlimited : parse_number<index_t>(text, setting);
}
void parse_field(float& field, std::string_view text, std::string_view setting) {
  field = parse_number<float>(text, setting);
}
void parse_field(zoomr::scope& field, std::string_view text, std::string_view setting) {
  field = parse_name<zoomr::scope>(text, setting, scope_names);
}
void parse_field(zoomr::pool& field, std::string_view text, std::string_view setting) {
  field = parse_name<zoomr::pool>(text, setting, pool_names);
}
void parse_field(zoomr::summaries_attended& field, std::string_view text, std::string_view setting) {
  field = parse_name<zoomr::summaries_attended>(text, setting, summaries_names);
}

// Prints it as it is read.
void print_field(std::ostream& out, bool field) { out << truths[field ? 1 : 0]; }
void print_field(std::ostream& out, index_t field) {
  if (field == zoomr::unlimited)
    out << "unlimited";
  else
    out << field;
}
void print_field(std::ostream& out, float field) { out << field; }

}  // namespace

void print_field(std::ostream& out, zoomr::scope field) { out << scope_names[static_cast<std::size_t>(field)]; }
void print_field(std::ostream& out, zoomr::pool field) { out << pool_names[static_cast<std::size_t>(field)]; }
void print_field(std::ostream& out, zoomr::summaries_attended field) {
  out << summaries_names[static_cast<std::size_t>(field)];
}

std::string describe_options(const policy_options& all) {
  std::ostringstream out;
  for (const policy_option& each : all) {
    out << (out.tellp() > 0 ? " " : "") << each.name << '=';
    std::visit([&](const auto* field) { print_field(out, *field); }, each.field);
  }
  return out.str();
}

int set_options(const policy_options& all, const std::vector<std::string>& settings) {
  int applied = 0;
  for (const std::string& setting : settings) {
    if (setting.find('=') == std::string::npos) fail("--set ", setting, ": it must be component.field=value");
    for (const policy_option& each : all) {
      if (!setting.starts_with(each.name) || setting[each.name.size()] != '=') continue;
      const auto text = std::string_view(setting).substr(each.name.size() + 1);
      std::visit([&](auto* field) { parse_field(*field, text, setting); }, each.field);
      ++applied;
    }
  }
  return applied;
}

std::string names_of_options(const policy_options& all) {
  std::string out;
  for (const policy_option& each : all) out += (out.empty() ? "" : ", ") + each.name;
  return out;
}

namespace detail {

void add_option(policy_options& all, const std::string& name, policy_option::pointer field) {
  all.push_back({name, field});
}

void expect_no_less(const policy_choice& choice, index_t least_budget) {
  if (choice.budget > 0 && choice.budget < least_budget)
    fail(choice.name, ": the budget is ", choice.budget, ", but must be at least ", least_budget);
}

void expect_possible(const policy_choice& choice, const char* problem) {
  if (problem != nullptr) fail(choice.name, ": ", problem);
}

void refuse_name(const std::string& name) {
  std::string names;
  zoomr::presets::each([&](const auto& preset) { (names += names.empty() ? "" : ", ") += preset.name; });
  fail("there is no policy ", shown(name), "; known are ", names);
}

}  // namespace detail
}  // namespace decode

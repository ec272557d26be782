// SPDX-License-Identifier: Apache-2.0
#include "advice.hpp"

#include <algorithm>  // std::any_of, std::sort
#include <sstream>    // std::ostringstream

#include "../decode/policies.hpp"
#include "../decode/table.hpp"

namespace replay {
namespace {

using decode::fixed;

bool has_class(const trace& from, zoomr::token_class wanted) {
  return std::any_of(from.classes().begin(), from.classes().end(),
                     [&](zoomr::token_class one) { return zoomr::has(one, wanted); });
}

/// Whether what a preset looks for is in the trace.
template <class Policy>
bool can_work(const Policy& policy, const trace& from, bool voters) {
  using enum zoomr::token_class;
  if (zoomr::share_aggregator<decltype(Policy::aggregate)> && !voters) return false;
  const bool thoughts = std::string(decltype(Policy::segment)::name) == "thoughts";
  if (thoughts || policy.placement.frees_unreachable)
    return has_class(from, summary_end) || has_class(from, thought_end) || !thoughts;
  const bool reads = zoomr::class_reader<decltype(Policy::segment)> || zoomr::class_reader<decltype(Policy::refresh)>;
  return !reads || has_class(from, delimiter | mark);
}

std::string number(float value) {
  std::ostringstream text;
  text.precision(9);
  text << value;
  return text.str() + (text.str().find_first_of(".e") == std::string::npos ? ".0f" : "f");
}

/// As C++ has it.
std::string in_cpp(bool value) { return value ? "true" : "false"; }
std::string in_cpp(index_t value) { return value == zoomr::unlimited ? "zoomr::unlimited" : std::to_string(value); }
std::string in_cpp(float value) { return number(value); }
template <class Enum>
std::string in_cpp(Enum value) {
  std::ostringstream name;
  decode::print_field(name, value);
  const char* const type = std::is_same_v<Enum, zoomr::scope>  ? "zoomr::scope::"
                           : std::is_same_v<Enum, zoomr::pool> ? "zoomr::pool::"
                                                               : "zoomr::summaries_attended::";
  return type + name.str();
}

/// Of a policy, as each_component visits them.
constexpr const char* component_names[] = {"segment",   "evict",  "summarize", "query", "score",
                                           "aggregate", "select", "refresh",   "zone",  "placement"};

/// Fields of all components, by their place in a policy: "select.segments", and the value in C++.
template <class Policy>
std::vector<std::pair<std::string, std::string>> fields_of(const Policy& policy) {
  std::vector<std::pair<std::string, std::string>> fields;
  std::size_t component = 0;
  Policy::each_component(policy, [&](const auto& part) {
    zoomr::each_field_of(part, [&](const char* name, const auto& value) {
      fields.emplace_back(std::string(component_names[component]) + "." + name, in_cpp(value));
    });
    ++component;
  });
  return fields;
}

}  // namespace

std::vector<std::string> policies_to_try(const trace& from, bool voters) {
  std::vector<std::string> all;
  zoomr::presets::each([&](const auto& preset) {
    if (!can_work(preset.policy, from, voters)) return;
    if (std::string(preset.limits) == "nothing") return all.push_back(preset.name);
    for (const index_t part : {16, 8, 4, 2}) {
      const index_t budget = from.facts().tokens / part / 16 * 16;
      if (budget < std::max(32, preset.least_budget(preset.policy))) continue;
      if (preset.with_budget(budget).problem() != nullptr) continue;
      all.push_back(preset.name + ("@" + std::to_string(budget)));
    }
  });
  return all;
}

std::string not_tried(const trace& from, bool voters) {
  using enum zoomr::token_class;
  std::string why;
  if (!voters) why = "heads that vote are not known (--voters)";
  if (!has_class(from, summary_end) && !has_class(from, thought_end))
    why += std::string(why.empty() ? "" : ", and ") + "the trace has no thoughts";
  return why.empty() ? why : why + ": presets that need them are not tried";
}

bool policy_cost::beats(const policy_cost& other) const {
  const bool worse = error > other.error || device > other.device || moved > other.moved;
  return !worse && (error < other.error || device < other.device || moved < other.moved);
}

policy_cost cost_of(const replay_result& result) {
  return {result.all_heads().error, result.tiers ? 0 : result.stats.device_peak, result.moved_in()};
}

std::vector<std::size_t> pareto_front(const std::vector<replay_result>& results) {
  std::vector<std::size_t> front;
  const auto stands = [](const replay_result& one) { return one.conclusive() || one.baseline(); };
  for (std::size_t i = 0; i < results.size(); ++i) {
    const policy_cost mine = cost_of(results[i]);
    const auto beaten = [&](const replay_result& other) { return stands(other) && cost_of(other).beats(mine); };
    if (stands(results[i]) && std::none_of(results.begin(), results.end(), beaten)) front.push_back(i);
  }
  std::stable_sort(front.begin(), front.end(),
                   [&](std::size_t a, std::size_t b) { return cost_of(results[a]).error < cost_of(results[b]).error; });
  return front;
}

std::string cpp_value(const decode::policy_choice& choice) {
  std::string text;
  decode::with_policy(choice, [&](const auto& policy) {
    zoomr::presets::with_name(choice.name, [&](const auto& preset) {
      if constexpr (std::is_same_v<decltype(preset.policy), std::remove_cvref_t<decltype(policy)>>) {
        const auto before = fields_of(preset.policy), after = fields_of(policy);
        std::string changes;
        for (std::size_t i = 0; i < after.size(); ++i) {
          if (after[i] != before[i]) changes += "  value." + after[i].first + " = " + after[i].second + ";\n";
        }
        const std::string value = "zoomr::presets::" + choice.name;
        text = "constexpr auto policy = " + value + ";\n";
        if (!changes.empty())
          text = "constexpr auto policy = [] {\n  auto value = " + value + ";\n" + changes + "  return value;\n}();\n";
      }
    });
  });
  return text;
}

void print_advice(std::ostream& out, const std::vector<named_policy>& policies,
                  const std::vector<replay_result>& results) {
  const std::vector<std::size_t> front = pareto_front(results);
  out << "\nOf " << results.size() << " policies, those that no other beats in error and cost:\n";
  decode::table shown(
      {"policy", "error", "captured", "attended", "device KiB", "moved in KiB/token", "for the prompt KiB"});
  for (const std::size_t i : front) {
    const policy_cost cost = cost_of(results[i]);
    const head_figures all = results[i].all_heads();
    shown.add({results[i].policy, fixed(100 * cost.error, 2) + " %", fixed(100 * all.captured, 1) + " %",
               fixed(all.attended, 1), decode::kib(results[i].device_bytes()),
               results[i].tiers ? fixed(cost.moved / 1024, 1) : std::string("-"),
               results[i].tiers ? decode::kib(results[i].prompt_in) : std::string("-")});
  }
  shown.print(out);
  for (const std::size_t i : front) out << "\n// " << results[i].policy << '\n' << cpp_value(policies[i].choice);
  if (front.empty()) {
    const bool dense = std::any_of(results.begin(), results.end(), [](const auto& result) { return result.dense; });
    out << "none: no policy left out anything, since "
        << (dense ? "the trace is too short, or has none but dense layers" : "the trace is too short") << '\n';
  }
  if (front.size() == 1 && results[front[0]].baseline() && results[front[0]].tiers)
    out << "\nAll of it fits on this device, so that nothing else pays: name fewer bytes, or no --device-bytes.\n";
}

}  // namespace replay

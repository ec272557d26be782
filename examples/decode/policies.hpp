// SPDX-License-Identifier: Apache-2.0
// Policies by name: what a command line says becomes a value of a type known at compile time.
#pragma once

#include <zoomr/zoomr.hpp>

#include <algorithm>    // std::max
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

using zoomr::index;

/// One line of --list-policies.
struct policy_entry {
  const char* name;
  const char* what;
  const char* budget;  // what --budget limits
};

inline constexpr policy_entry policy_table[] = {
    {"full", "attends to everything: the baseline", "nothing"},
    {"window", "sinks and a sliding window (StreamingLLM)", "attended tokens: sinks and window"},
    {"summary_only", "prompt, summaries, open thought and window; never zooms (SumR)", "tokens of the window"},
    {"zoomr_one_pass", "ZoomR: heads vote for thoughts, at sentence ends, for the tokens after it",
     "tokens of zoomed details"},
    {"zoomr_second_pass", "ZoomR: the same votes; the sentence end is passed again under the new choice",
     "tokens of zoomed details"},
    {"zoomr_mass", "ZoomR, heads weighted by estimated attention, the sentence end passed again",
     "tokens of zoomed details"},
    {"zoomr_focus", "ZoomR, each layer alone: one thought, found by its own keys, in the same pass",
     "tokens of zoomed details"},
    {"zoomr_follow", "zoomr_focus, choosing at every token", "tokens of zoomed details"},
    {"sentence_kv", "SentenceKV: whole sentences by their mean keys, at every token", "attended tokens (tau)"},
    {"sentence_kv_published", "SentenceKV, attending to all that is retained at a delimiter and just after",
     "attended tokens (tau)"},
    {"sentence_box", "whole sentences by an upper bound of their logits, at every token", "attended tokens (tau)"},
    {"quest", "Quest: pages of 16 tokens by an upper bound of their logits, at every token",
     "tokens of chosen pages; a page has 16"},
    {"lightthinker", "LightThinker: prompt, summaries and the open thought; a thought goes when its summary ends",
     "nothing"},
    {"arkvale", "ArkVale: pages of 32 tokens by the cuboid of their keys, one choice a layer, at every token",
     "tokens of all attended pages; a page has 32"},
    {"snapkv", "SnapKV: of the prompt, what its last queries look at; everything after it",
     "tokens of the prompt that are kept"},
    {"h2o", "H2O: the last tokens and those that have got most attention so far", "tokens that each KV head keeps"},
    {"r_kv", "R-KV: every 128 tokens, each KV head keeps what is looked at and not said twice",
     "tokens that each KV head keeps"},
    {"raas", "RaaS: the prompt, and of what is written the pages of 16 that were lately of use",
     "tokens beside the prompt that each KV head keeps"},
    {"infllm", "InfLLM: blocks of 128 tokens by 4 of their keys, one choice a layer, beside a long window",
     "tokens of chosen blocks; a block has 128"},
    {"shadowkv", "ShadowKV's landmarks: chunks of 8 tokens by the mass of their mean keys, at every token",
     "tokens of chosen chunks; a chunk has 8"},
};

/// A policy as the command line gives it.
struct policy_choice {
  std::string name;
  index budget = 0;                   // 0: the preset's own
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
  } else if constexpr (std::is_same_v<Field, index>) {
    field = text == "unlimited" ? zoomr::unlimited : parse_number<index>(text, setting);
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

template <class Field>
void print_field(std::ostream& out, const Field& field) {
  const auto name = [&](std::span<const std::string_view> names) { out << names[static_cast<std::size_t>(field)]; };
  if constexpr (std::is_same_v<Field, bool>) {
    name(truths);
  } else if constexpr (std::is_same_v<Field, index>) {
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

/// visit("component.field", field) for all fields of all components.
template <class Policy>
void each_field(Policy& policy, auto visit) {
  std::remove_const_t<Policy>::each_component(policy, [&](auto& part) {
    using component = std::remove_cvref_t<decltype(part)>;
    component::each_field(
        part, [&](const char* field, auto& value) { visit(std::string(component::name) + "." + field, value); });
  });
}

}  // namespace detail

/// "zones.sinks=4 zones.recent=64 ..."
template <class Policy>
std::string describe(const Policy& policy) {
  std::ostringstream out;
  detail::each_field(policy, [&](const std::string& name, const auto& value) {
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
    const auto equals = setting.find('=');
    if (equals == std::string::npos) fail("--set ", setting, ": it must be component.field=value");
    detail::each_field(policy, [&](const std::string& name, auto& field) {
      if (name != setting.substr(0, equals)) return;
      detail::parse_field(field, std::string_view(setting).substr(equals + 1), setting);
      ++applied;
    });
  }
  return applied;
}

/// "zones.sinks, zones.recent, ...": what --set can set of a policy.
template <class Policy>
std::string option_names(const Policy& policy) {
  std::string out;
  detail::each_field(policy, [&](const std::string& name, const auto&) { out += (out.empty() ? "" : ", ") + name; });
  return out;
}

/// Calls visit(policy) with the policy of that name, its budget and settings applied.
/// @throws  input_error if there is no such policy, or if its options cannot work together
template <class Visit>
void with_policy(const policy_choice& choice, Visit visit) {
  namespace presets = zoomr::policies;
  const index budget = choice.budget;
  if (budget < 0) fail("the budget is ", budget, ", but must be at least 1");
  const auto use = [&](auto policy) {
    apply(policy, choice.settings);
    if (const char* problem = policy.problem()) fail(choice.name, ": ", problem);
    visit(policy);
  };
  const auto zooming = [&](auto policy) {
    if (budget > 0) policy.select.tokens = budget;
    use(policy);
  };
  const auto paging = [&](auto policy) {
    auto sized = policy;  // a page may have been set to another size
    apply(sized, choice.settings);
    if (budget > 0 && sized.segment.longest > 0) policy.select.segments = (budget - 1) / sized.segment.longest + 1;
    use(policy);
  };
  if (choice.name == "full") {
    use(presets::full);
  } else if (choice.name == "window") {
    auto policy = presets::window;
    if (budget > 0) policy.zone.recent = budget - policy.zone.sinks;
    if (policy.zone.recent < 1)
      fail("window: the budget of ", budget, " is smaller than sinks + window, at least ", policy.zone.sinks + 1);
    use(policy);
  } else if (choice.name == "summary_only") {
    auto policy = presets::summary_only;
    if (budget > 0) policy.zone.recent = budget;
    use(policy);
  } else if (choice.name == "zoomr_one_pass") {
    zooming(presets::zoomr_one_pass);
  } else if (choice.name == "zoomr_second_pass") {
    zooming(presets::zoomr_second_pass);
  } else if (choice.name == "zoomr_mass") {
    zooming(presets::zoomr_mass);
  } else if (choice.name == "zoomr_focus") {
    zooming(presets::zoomr_focus);
  } else if (choice.name == "zoomr_follow") {
    zooming(presets::zoomr_follow);
  } else if (choice.name == "sentence_kv") {
    use(budget > 0 ? presets::sentence_kv_with(budget, 3.0f) : presets::sentence_kv);
  } else if (choice.name == "sentence_kv_published") {
    use(budget > 0 ? presets::sentence_kv_with(budget, 3.0f, {.everything_until = 1}) : presets::sentence_kv_published);
  } else if (choice.name == "sentence_box") {
    use(budget > 0 ? presets::sentence_box_with(budget) : presets::sentence_box);
  } else if (choice.name == "quest") {
    paging(presets::quest);
  } else if (choice.name == "lightthinker") {
    use(presets::lightthinker);
  } else if (choice.name == "arkvale") {
    auto sized = presets::arkvale;
    apply(sized, choice.settings);
    const index page = std::max(sized.segment.longest, 1);
    if (budget > 0 && (budget - 1) / page + 1 < 4)
      fail("arkvale: the budget of ", budget, " is less than four pages of ", page, " tokens");
    use(presets::arkvale_with(budget > 0 ? budget : 32 * page, page));
  } else if (choice.name == "snapkv") {
    use(budget > 0 ? presets::snapkv_with(budget) : presets::snapkv);
  } else if (choice.name == "h2o") {
    use(budget > 0 ? presets::h2o_with(budget) : presets::h2o);
  } else if (choice.name == "r_kv") {
    use(budget > 0 ? presets::r_kv_with(budget) : presets::r_kv);
  } else if (choice.name == "raas") {
    use(budget > 0 ? presets::raas_with(budget) : presets::raas);
  } else if (choice.name == "infllm") {
    paging(presets::infllm);
  } else if (choice.name == "shadowkv") {
    paging(presets::shadowkv);
  } else {
    std::string known;
    for (const policy_entry& entry : policy_table) (known += known.empty() ? "" : ", ") += entry.name;
    fail("there is no policy ", shown(choice.name), "; known are ", known);
  }
}

}  // namespace decode

// SPDX-License-Identifier: Apache-2.0
// Presets of sentences that cut source code, at functions and blocks, beside the presets, by name.
//
//   code_kv[@tokens]  sentence_kv
//   code_voters       sentence_voters
#pragma once

#include <zoomr/policy/segment/code_segments.hpp>

#include <concepts>  // std::same_as
#include <cstddef>   // std::size_t
#include <string>    // std::string
#include <vector>    // std::vector

#include "policies.hpp"
#include "token_classes.hpp"

namespace decode {

/// A policy with `code_segments` in place of its segmenter.
template <class Policy>
constexpr auto of_code(const Policy& preset) {
  return zoomr::compose(zoomr::code_segments{}, preset.evict, preset.summarize, preset.query, preset.score,
                        preset.aggregate, preset.select, preset.refresh, preset.zone, preset.placement);
}

inline bool is_code_policy(const std::string& name) { return name == "code_kv" || name == "code_voters"; }

/// Calls visit(policy) with a preset, or with one of these; its budget and settings are applied.
/// @throws input_error  as of `with_policy`; a budget of code_voters
template <class Visit>
void with_preset_or_code(const policy_choice& choice, Visit visit) {
  if (!is_code_policy(choice.name)) return with_policy(choice, visit);
  const auto set = [&](auto policy) {
    apply(policy, choice.settings);
    detail::expect_possible(choice, policy.problem());
    visit(policy);
  };
  using namespace zoomr::presets;
  if (choice.name == "code_kv") return set(of_code(choice.budget > 0 ? sentence_kv_with(choice.budget) : sentence_kv));
  if (choice.budget > 0) fail(choice.name, " has no budget");
  set(of_code(sentence_voters));
}

/// The classes of a vocabulary by the rules that a segmenter needs.
struct class_tables {
  std::vector<zoomr::token_class> usual;  // [V]
  std::vector<zoomr::token_class> code;   // [V]  line ends and indentation too

  class_tables(const tokenizer& words, std::size_t vocab, const std::vector<std::string>& delimiters)
      : usual(classify(words, vocab, delimiters)),
        code(classify(words, vocab, {}, mark_rule::before_blank, line_rule::end_segments)) {}

  template <class Segmenter>
  const std::vector<zoomr::token_class>& read_by(const Segmenter&) const {
    return std::same_as<Segmenter, zoomr::code_segments> ? code : usual;
  }
};

}  // namespace decode

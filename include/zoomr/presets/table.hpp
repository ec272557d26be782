// SPDX-License-Identifier: Apache-2.0
// L5. All presets by name, for engines that choose one at run time.
#pragma once

#include <zoomr/presets/arkvale.hpp>
#include <zoomr/presets/full.hpp>
#include <zoomr/presets/h2o.hpp>
#include <zoomr/presets/quest.hpp>
#include <zoomr/presets/r_kv.hpp>
#include <zoomr/presets/sentence_box.hpp>
#include <zoomr/presets/sentence_kv.hpp>
#include <zoomr/presets/snapkv.hpp>
#include <zoomr/presets/voters.hpp>
#include <zoomr/presets/window.hpp>
#include <zoomr/presets/zoomr_thoughts.hpp>

#include <string_view>  // std::string_view

namespace zoomr::inline v0::presets {

/// One line of the table.
template <class Policy, class Budget>
struct preset {
  const char* name;
  const char* what;    // in a few words
  const char* limits;  // what its budget limits
  Policy policy;       // with its own budget
  Budget budget;       // a function without state: budget(policy, tokens) -> Policy; tokens 0: its own

  /// The preset with a budget of `tokens` tokens, at least `least_budget(policy)`; 0: its own.
  constexpr Policy with_budget(index_t tokens) const { return with_budget(policy, tokens); }
  /// The same of `changed`, whose other fields were set before: pages, for example, of another size.
  constexpr Policy with_budget(const Policy& changed, index_t tokens) const { return Budget{}(changed, tokens); }
  /// The smallest budget that can work, of such a policy.
  constexpr index_t least_budget(const Policy& variant) const {
    if constexpr (requires { Budget::least(variant); }) return Budget::least(variant);
    return 1;
  }
};
template <class Policy, class Budget>
preset(const char*, const char*, const char*, Policy, Budget) -> preset<Policy, Budget>;

namespace budgets {

inline constexpr auto none = [](auto policy, index_t) { return policy; };
/// Of sinks and window together.
struct of_window {
  constexpr auto operator()(auto policy, index_t tokens) const {
    if (tokens > 0) policy.zone.recent = tokens - policy.zone.sinks;
    return policy;
  }
  static constexpr index_t least(const auto& policy) { return policy.zone.sinks + 1; }
};
inline constexpr auto beside_window = [](auto policy, index_t tokens) {
  if (tokens > 0) policy.zone.recent = tokens;
  return policy;
};
/// Of pages, those that are always attended included.
struct of_all_pages {
  constexpr auto operator()(const auto& policy, index_t tokens) const {
    const index_t page = size(policy);
    return arkvale_with(tokens > 0 ? tokens : 32 * page, page);
  }
  static constexpr index_t least(const auto& policy) { return 3 * size(policy) + 1; }
  static constexpr index_t size(const auto& policy) { return policy.segment.longest > 1 ? policy.segment.longest : 1; }
};
/// Of a selector that counts tokens.
inline constexpr auto of_details = [](auto policy, index_t tokens) {
  if (tokens > 0) policy.select.tokens = tokens;
  return policy;
};
/// Of a selector that counts pages of one size: rounded up.
inline constexpr auto of_pages = [](auto policy, index_t tokens) {
  const index_t page = policy.segment.longest;
  if (tokens > 0 && page > 0) policy.select.segments = (tokens - 1) / page + 1;
  return policy;
};

}  // namespace budgets

/// visit(preset) for each, in the order of a list that is shown.
template <class Visit>
constexpr void each(Visit visit) {
  visit(preset{"full", "attends to everything: the baseline", "nothing", full, budgets::none});
  visit(preset{"window", "sinks and a sliding window (StreamingLLM)", "attended tokens: sinks and window", window,
               budgets::of_window{}});
  visit(preset{"summary_only", "prompt, summaries, open thought and window; never zooms (SumR)", "tokens of the window",
               summary_only, budgets::beside_window});
  visit(preset{"zoomr_one_pass", "ZoomR: heads vote for thoughts, at sentence ends, for the tokens after it",
               "tokens of zoomed details", zoomr_one_pass, budgets::of_details});
  visit(preset{"zoomr_second_pass", "ZoomR: the same votes; the sentence end is passed again under the new choice",
               "tokens of zoomed details", zoomr_second_pass, budgets::of_details});
  visit(preset{"zoomr_mass", "ZoomR, heads weighted by estimated attention, the sentence end passed again",
               "tokens of zoomed details", zoomr_mass, budgets::of_details});
  visit(preset{"zoomr_focus", "ZoomR, each layer alone: one thought, found by its own keys, in the same pass",
               "tokens of zoomed details", zoomr_focus, budgets::of_details});
  const auto of_sentences = [](const auto& policy, index_t tokens) {
    return tokens > 0 ? sentence_kv_with(tokens, 3.0f, policy.refresh) : policy;
  };
  visit(preset{"sentence_kv", "SentenceKV: whole sentences by their mean keys, at every token", "attended tokens (tau)",
               sentence_kv, of_sentences});
  visit(preset{"sentence_kv_published", "SentenceKV, attending to all that is kept at a delimiter and just after",
               "attended tokens (tau)", sentence_kv_published, of_sentences});
  visit(preset{"sentence_box", "whole sentences by an upper bound of their logits, at every token",
               "attended tokens (tau)", sentence_box,
               [](const auto& policy, index_t tokens) { return tokens > 0 ? sentence_box_with(tokens) : policy; }});
  visit(preset{"quest", "Quest: pages of 16 tokens by an upper bound of their logits, at every token",
               "tokens of chosen pages; a page has 16", quest, budgets::of_pages});
  visit(preset{"arkvale", "ArkVale: pages of 32 tokens by the cuboid of their keys, one choice a layer, at every token",
               "tokens of all attended pages; a page has 32", arkvale, budgets::of_all_pages{}});
  visit(preset{"snapkv", "SnapKV: of the prompt, what its last queries look at; everything after it",
               "tokens of the prompt that are kept", snapkv,
               [](const auto& policy, index_t tokens) { return tokens > 0 ? snapkv_with(tokens) : policy; }});
  visit(preset{"h2o", "H2O: the last tokens and those that have got most attention so far",
               "tokens that each KV head keeps", h2o,
               [](const auto& policy, index_t tokens) { return tokens > 0 ? h2o_with(tokens) : policy; }});
  visit(preset{"r_kv", "R-KV: every 128 tokens, each KV head keeps what is looked at and not said twice",
               "tokens that each KV head keeps", r_kv,
               [](const auto& policy, index_t tokens) { return tokens > 0 ? r_kv_with(tokens) : policy; }});
  visit(preset{"zoomr_voters", "thoughts that a few heads find by their keys (config.voters), at every token",
               "nothing", zoomr_voters, budgets::none});
  visit(preset{"sentence_voters", "sentences that a few heads find by their keys (config.voters), at every token",
               "nothing", sentence_voters, budgets::none});
}

/// visit(preset) for the one of that name.
/// @return  false if there is none
template <class Visit>
constexpr bool with_name(std::string_view name, Visit visit) {
  bool found = false;
  each([&](const auto& row) {
    if (found || name != row.name) return;
    found = true;
    visit(row);
  });
  return found;
}

}  // namespace zoomr::inline v0::presets

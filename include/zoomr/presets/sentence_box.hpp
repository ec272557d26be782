// SPDX-License-Identifier: Apache-2.0
// L5. SentenceKV's sentences on the host, found by Quest's bound: our best for long prompts, measured in
// docs/results/ledger-prompts.md. Beside the published rules, not in their place.
#pragma once

#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/refresh/every_token.hpp>
#include <zoomr/policy/score/box_bound.hpp>
#include <zoomr/policy/segment/sentences.hpp>
#include <zoomr/policy/select/fill_budget.hpp>
#include <zoomr/policy/summarize/key_box.hpp>

namespace zoomr::inline v0::presets {

/// Whole sentences, or pieces of at most 8 tokens of them, by the smallest and largest value of each key coordinate:
/// what one token of a sentence is needed for is not lost in a mean. Scores are by the token's own query; for each KV
/// head the best of its query heads counts; nothing of the prompt is evicted. Half of `tokens`, the budget of attended
/// tokens, are the last ones; with the 4 sinks two thirds of it at most.
constexpr auto sentence_box_with(index_t tokens) {
  return compose(sentences{.longest = 8}, key_box{}, box_bound{}, pooled_score{.over_group = pool::max},
                 fill_budget{.tokens = tokens}, every_token{},
                 within_budget({.sinks = 4, .recent = tokens / 2}, tokens), placement{.details_on_host = true});
}

inline constexpr auto sentence_box = sentence_box_with(1024);

}  // namespace zoomr::inline v0::presets

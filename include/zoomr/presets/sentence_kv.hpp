// SPDX-License-Identifier: Apache-2.0
// L5. SentenceKV: of the prompt, what its end attends; while decoding, whole sentences by their mean keys.
// Source: arXiv:2504.00970. Differs: per KV head, scores averaged over its query heads, where the released code
// keeps one copy for each query head; the first 32 tokens of the text, where the released code has the first 32 that
// were kept and never offers the one after them; the open sentence is attended whole, as far as the budget goes;
// at a delimiter and just after it the budget holds (it does not in `sentence_kv_published`, which differs in all else
// as `sentence_kv` does); every generated sentence joins the index, where the released code has room for a number of
// them. Undescribed there and decided here: sentences end at 256 tokens and at the end of the prompt; sinks are safe
// from eviction; later user turns are a later prompt, or generated text where they come as drafts.
#pragma once

#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/evict/observation_window.hpp>
#include <zoomr/policy/query/running_mean.hpp>
#include <zoomr/policy/refresh/every_token.hpp>
#include <zoomr/policy/segment/sentences.hpp>
#include <zoomr/policy/select/fill_budget.hpp>
#include <zoomr/policy/summarize/key_mean.hpp>

#include <algorithm>  // std::min

namespace zoomr::inline v0::presets {

/// SentenceKV with a budget of `tokens` attended tokens (tau), of which the prompt keeps `ratio` times as many;
/// ratio 0: all of it (r = infinity). Sinks, window and observed queries are 32 each, or fewer: two thirds of the
/// budget, and of what the prompt keeps, at most.
constexpr auto sentence_kv_with(index_t tokens, float ratio = 3.0f, every_token refresh = {}) {
  const float retained = ratio * static_cast<float>(tokens);
  const bool keeps_all = ratio <= 0.0f || retained >= 2147483520.0f;
  const index_t kept = keeps_all ? unlimited : static_cast<index_t>(retained);
  zones zone = within_budget({.sinks = 32, .recent = 32}, tokens);
  zone.open = tokens > zone.sinks ? tokens - zone.sinks : 0;
  return compose(sentences{},
                 observation_window{.tokens = kept, .queries = std::min<index_t>(32, unchosen_share(kept))}, key_mean{},
                 running_mean{}, mean_dot{}, fill_budget{.tokens = tokens}, refresh, zone,
                 placement{.details_on_host = true});
}

inline constexpr auto sentence_kv = sentence_kv_with(1024);

/// With the rule of the released code that everything kept is attended while the open sentence has at most one
/// token: at each generated delimiter, after which it is empty, and at the token after it. In sentences of 24 tokens
/// after 32K tokens of which nothing was evicted that is 2,730 tokens a step more than tau, on the average.
inline constexpr auto sentence_kv_published = sentence_kv_with(1024, 3.0f, {.everything_until = 1});

}  // namespace zoomr::inline v0::presets

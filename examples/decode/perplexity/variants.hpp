// SPDX-License-Identifier: Apache-2.0
// Policies that are compared here beside the named ones.
#pragma once

#include <zoomr/score/box_bound.hpp>
#include <zoomr/summarize/key_box.hpp>

#include "../policies.hpp"

namespace decode::perplexity {

/// SentenceKV's sentences, found by Quest's bound: the box around a sentence's keys and the token's own query, the best
/// of a group's heads deciding; nothing of the prompt is lost.
constexpr auto sentence_box_with(index tokens) {
  constexpr auto like = zoomr::policies::sentence_kv;
  auto zone = like.zone;
  zone.open = tokens > zone.recent ? tokens - zone.recent : 0;
  return zoomr::compose(like.segment, zoomr::key_box{}, zoomr::box_bound{},
                        zoomr::pooled_score{.over_group = zoomr::pool::max}, zoomr::fill_budget{.tokens = tokens},
                        like.refresh, zone, like.store);
}

/// `with_policy`, which also knows `sentence_box`.
/// @throws input_error
template <class Visit>
void with_variant(const policy_choice& choice, Visit visit) {
  if (choice.name != "sentence_box") return with_policy(choice, visit);
  auto policy = sentence_box_with(choice.budget > 0 ? choice.budget : 1024);
  apply(policy, choice.settings);
  if (const char* problem = policy.problem()) fail(choice.name, ": ", problem);
  visit(policy);
}

}  // namespace decode::perplexity

// SPDX-License-Identifier: Apache-2.0
// The policies of the host's rows.
#pragma once

#include <zoomr/zoomr.hpp>

#include "rows.hpp"

namespace zoomr_bench {

/// Everything.
inline constexpr auto host_full = zoomr::presets::full;
/// Sentences of 24, a choice at each token, a budget of 1,024 tokens.
inline constexpr auto host_sentence_kv =
    zoomr::compose(zoomr::sentences{.longest = 24}, zoomr::key_mean{}, zoomr::mean_dot{}, zoomr::running_mean{},
                   zoomr::fill_budget{.tokens = toy ? 60 : 1024}, zoomr::every_token{},
                   zoomr::zones{.sinks = 4, .recent = 32, .open = 24});
/// Pages of 16 by the boxes of their keys, 64 at each token: as the preset, but for its dense layers.
inline constexpr auto host_quest = [] {
  auto policy = zoomr::presets::quest;
  policy.zone.dense_layers = 0;
  if (toy) policy.select.segments = 2;
  return policy;
}();
/// Thoughts of 400 with summaries of 30 after a prompt, a choice at each sentence's end.
inline constexpr auto host_zoomr_focus = zoomr::presets::zoomr_focus;

/// Sentences that a head finds by its keys, at each token: one head of 32, so that an eighth of all keys is scored. Of
/// pretrained models that were looked at it is a tenth or less.
inline constexpr auto host_sentence_voters = zoomr::presets::sentence_voters;

}  // namespace zoomr_bench

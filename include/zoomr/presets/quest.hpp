// SPDX-License-Identifier: Apache-2.0
// L5. Quest: pages of 16 tokens, chosen at each token by an upper bound of their logits.
// Source: arXiv:2406.10774. Differs: one choice for each KV head, by the best of its query heads (published for
// models without groups); the open page is always attended, beside the 64 (1,024 tokens, our default).
#pragma once

#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/refresh/every_token.hpp>
#include <zoomr/policy/score/box_bound.hpp>
#include <zoomr/policy/segment/fixed_pages.hpp>
#include <zoomr/policy/select/top_k.hpp>
#include <zoomr/policy/summarize/key_box.hpp>

namespace zoomr::inline v0::presets {

inline constexpr auto quest =
    compose(fixed_pages{.longest = 16}, key_box{}, box_bound{}, pooled_score{.over_group = pool::max},
            top_k{.segments = 64}, every_token{}, zones{.open = unlimited, .dense_layers = 2});

}  // namespace zoomr::inline v0::presets

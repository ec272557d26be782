// SPDX-License-Identifier: Apache-2.0
// L5. Quest: pages of 16 tokens, chosen at each token by an upper bound of their logits.
// Source: arXiv:2406.10774. Differs: one choice for each KV head, by the best of its query heads (published for
// models without groups); the open page is always attended, beside the 64 (1,024 tokens, our default).
#pragma once

#include <zoomr/policy.hpp>
#include <zoomr/refresh/every_token.hpp>
#include <zoomr/score/box_bound.hpp>
#include <zoomr/segment/fixed_pages.hpp>
#include <zoomr/select/best_segments.hpp>
#include <zoomr/summarize/key_box.hpp>

namespace zoomr {
inline namespace v0 {
namespace policies {

inline constexpr auto quest =
    compose(fixed_pages{.longest = 16}, key_box{}, box_bound{}, pooled_score{.over_group = pool::max},
            best_segments{.segments = 64}, every_token{}, zones{.open = unlimited, .dense_layers = 2});

}  // namespace policies
}  // namespace v0
}  // namespace zoomr

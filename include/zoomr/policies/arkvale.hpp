// SPDX-License-Identifier: Apache-2.0
// L5. ArkVale: pages of 32 tokens go to the host and leave their box behind; the best of each layer come back.
// Source: NeurIPS 2024, "ArkVale: Efficient Generative LLM Inference with Recallable Key-Value Eviction". Differs:
// boxes only, no balls; what is recalled is what is attended, where the published system keeps more pages resident than
// it attends. Decided here: the heads of a layer rank pages by the mean of their bounds; sinks and window are one page
// each, the first two layers are dense.
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

inline constexpr auto arkvale =
    compose(fixed_pages{.longest = 32}, key_box{}, box_bound{}, pooled_score{.per = scope::layer},
            best_segments{.segments = 32}, every_token{},
            zones{.sinks = 32, .recent = 32, .open = unlimited, .dense_layers = 2}, details_on_host{});

}  // namespace policies
}  // namespace v0
}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// L5. InfLLM: blocks of 128 tokens, found by 4 keys of each; the best 16 of a layer beside the beginning and a long
// window. Source: arXiv:2402.04617. Differs: a block's 4 keys are those most typical of its keys, published those that
// the queries after them look at most; they are chosen when the block closes, there when it leaves the window; keys
// keep their positions, where all that is before the window is put at one distance there.
#pragma once

#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/refresh/every_token.hpp>
#include <zoomr/policy/segment/fixed_pages.hpp>
#include <zoomr/policy/select/top_k.hpp>
#include <zoomr/policy/summarize/typical_keys.hpp>

namespace zoomr::inline v0::presets {

inline constexpr auto infllm = compose(
    fixed_pages{.longest = 128}, typical_keys{}, mean_dot{}, pooled_score{.per = scope::layer}, top_k{.segments = 16},
    every_token{}, zones{.sinks = 128, .recent = 4096, .open = unlimited}, placement{.details_on_host = true});

}  // namespace zoomr::inline v0::presets

// SPDX-License-Identifier: Apache-2.0
// L5. ShadowKV's landmarks: chunks of 8 tokens by their mean keys; each head looks where its attention would go.
// Source: arXiv:2410.21465. Differs: keys are kept as they are, not at low rank, and come from the host like values; no
// outlier chunks (those that resemble their landmark least) are kept in any case; generated
// tokens make chunks like those of the prompt, where they are all kept there.
#pragma once

#include <zoomr/policy/aggregate/pooled_mass.hpp>
#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/refresh/every_token.hpp>
#include <zoomr/policy/segment/fixed_pages.hpp>
#include <zoomr/policy/select/top_k.hpp>
#include <zoomr/policy/summarize/key_mean.hpp>

namespace zoomr::inline v0::presets {

inline constexpr auto shadowkv =
    compose(fixed_pages{.longest = 8}, key_mean{}, mean_dot{}, pooled_mass{}, top_k{.segments = 256}, every_token{},
            zones{.recent = 32, .open = unlimited}, placement{.details_on_host = true});

}  // namespace zoomr::inline v0::presets

// SPDX-License-Identifier: Apache-2.0
// L5. StreamingLLM: the first tokens and a sliding window.
// Source: arXiv:2309.17453. Differs: keys keep their positions; they are not renumbered inside the cache; the prompt is
// attended densely and held whole until it ends; eviction is by pages of 16.
// The sliding window of a model's layers is no policy, but config.logits.window.
#pragma once

#include <zoomr/policy/compose.hpp>

namespace zoomr::inline v0::presets {

inline constexpr auto window = compose(zones{.sinks = 4, .recent = 1020}, placement{.frees_unreachable = true});

}  // namespace zoomr::inline v0::presets

// SPDX-License-Identifier: Apache-2.0
// L5. LightThinker: a thought is read while it is written; once its gist is there, only the gist is.
// Source: arXiv:2502.15589. Differs: the gist is the summary that the model writes after its thought, of any length,
// where the published model is trained to fill a fixed number of gist tokens; its begin marker is attended too; text
// outside of thoughts goes when its segment closes (`thoughts.longest`), a thought without a summary when the next
// token shows that none comes; pages of 16 that a query can still reach stay whole.
#pragma once

#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/segment/thoughts.hpp>

namespace zoomr::inline v0::presets {

/// The prompt, all summaries, and the open thought.
inline constexpr auto lightthinker =
    compose(thoughts{}, zones{.recent = 1, .prompt = true, .open = unlimited}, placement{.frees_unreachable = true});

}  // namespace zoomr::inline v0::presets

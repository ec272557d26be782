// SPDX-License-Identifier: Apache-2.0
// L5. ZoomR: the heads vote which thoughts to zoom into; all summaries stay, the other details do not.
// Source: arXiv:2604.10898: k = c = 2, votes of all heads and layers, refresh at sentence ends. When a vote takes
// effect the paper leaves open: it is complete after the sentence end's whole pass, so that it serves the tokens after
// it (`zoomr_one_pass`), or the sentence end is passed again (`zoomr_second_pass`). Undescribed there and decided here
// too: the prompt is pinned, the open thought is whole, sinks = 4, recent = 64; all summaries are attended, a zoomed
// thought's own too; a thought without a summary is found by the mean of its own keys; only thoughts with details
// outside of the zones are voted for; the end of the prompt makes the first choice.
#pragma once

#include <zoomr/policy/aggregate/head_mass.hpp>
#include <zoomr/policy/aggregate/head_votes.hpp>
#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/refresh/boundaries.hpp>
#include <zoomr/policy/segment/thoughts.hpp>
#include <zoomr/policy/select/top_k.hpp>
#include <zoomr/policy/summarize/key_mean.hpp>

namespace zoomr::inline v0::presets {

inline constexpr zones thought_zones{.sinks = 4, .recent = 64, .prompt = true, .open = unlimited};

/// The votes serve the tokens after the sentence end that made the choice: no pass beside its own.
inline constexpr auto zoomr_one_pass =
    compose(thoughts{}, key_mean{}, mean_dot{}, head_votes{.k = 2}, top_k{.segments = 2}, boundaries{}, thought_zones,
            placement{.details_on_host = true});

/// The same votes; the sentence end that made the choice is passed again under it.
inline constexpr auto zoomr_second_pass =
    compose(thoughts{}, key_mean{}, mean_dot{}, head_votes{.k = 2}, top_k{.segments = 2},
            boundaries{.second_pass = true}, thought_zones, placement{.details_on_host = true});

/// Heads weigh as much as they would attend, and the delimiter is passed again under the new choice.
inline constexpr auto zoomr_mass =
    compose(thoughts{}, key_mean{}, mean_dot{}, head_mass{}, top_k{.segments = 2}, boundaries{.second_pass = true},
            thought_zones, placement{.details_on_host = true});

/// What the measurements favour (docs/results/evidence.md): each layer chooses one thought, found by the mean of its
/// own keys, in the delimiter's own pass. With `refresh.at_most = 1` each token chooses: a need shows without a
/// sentence end too, and other thoughts come in some sixty times as often.
inline constexpr auto zoomr_focus =
    compose(thoughts{.own_cue = true}, key_mean{}, mean_dot{}, head_mass{.per = scope::layer}, top_k{.segments = 1},
            boundaries{}, thought_zones, placement{.details_on_host = true});

/// ZoomR without zooming (SumR): the prompt, the summaries, the open thought and the window.
inline constexpr auto summary_only = compose(thoughts{}, thought_zones, placement{.frees_unreachable = true});

}  // namespace zoomr::inline v0::presets

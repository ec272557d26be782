// SPDX-License-Identifier: Apache-2.0
// L5. A few heads, whose weights were learnt for the model, vote which segments are needed: config.voters.
// Source: zoomr; retrieval heads, arXiv:2404.15574, weighted as in QRHead, arXiv:2506.09944, but at every token, by
// keys that stay, and for the other heads. Decided here: the last 16 queries score, and those of a named question whose
// first token is among the last 192; the smallest set with nine tenths of the posterior is read, at most 4 segments, of
// sentences with a neighbour on either side; sinks = 4, recent = 64; of a conversation the preamble is pinned in 128
// tokens, the question in 192, and the last 256 of its turns are recent: an earlier question in the same words takes
// the shares from what a new one needs.
#pragma once

#include <zoomr/policy/aggregate/head_posterior.hpp>
#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/refresh/every_token.hpp>
#include <zoomr/policy/score/key_mass.hpp>
#include <zoomr/policy/segment/sentences.hpp>
#include <zoomr/policy/segment/thoughts.hpp>
#include <zoomr/policy/select/top_p.hpp>

namespace zoomr::inline v0::presets {

/// Thoughts, those of the prompt too: all summaries are attended, and of the details what the voters find.
inline constexpr auto zoomr_voters =
    compose(thoughts{}, key_mass{}, head_posterior{.question = 192}, top_p{.share = 0.9f, .segments = 4}, every_token{},
            zones{.sinks = 4, .recent = 64, .turns = 256, .open = unlimited, .preamble = 128, .question = 192},
            placement{.details_on_host = true});

/// Sentences.
inline constexpr auto sentence_voters = compose(
    sentences{}, key_mass{}, head_posterior{.question = 192}, top_p{.share = 0.9f, .segments = 4, .neighbours = 1},
    every_token{}, zones{.sinks = 4, .recent = 64, .turns = 256, .preamble = 128, .question = 192},
    placement{.details_on_host = true});

}  // namespace zoomr::inline v0::presets

// SPDX-License-Identifier: Apache-2.0
// The policies whose steps and choices are timed on a device.
#pragma once

#include <zoomr/zoomr.cuh>

#include "rows.hpp"

namespace zoomr_bench::timed_policies {

/// Attends to everything.
inline constexpr auto full = zoomr::presets::full;
template <class Summarizer>
constexpr auto sentences_by(Summarizer means) {
  return zoomr::compose(zoomr::sentences{.longest = toy ? 8 : 24}, means, zoomr::mean_dot{}, zoomr::running_mean{},
                        zoomr::fill_budget{.tokens = toy ? 40 : 2048}, zoomr::every_token{},
                        zoomr::zones{.sinks = 4, .recent = toy ? 8 : 32, .open = toy ? 8 : 24});
}
inline constexpr auto sentence_kv_f32 = sentences_by(zoomr::key_mean{});
inline constexpr auto sentence_kv = sentences_by(zoomr::stored_as<zoomr::bfloat16>(zoomr::key_mean{}));
inline constexpr auto sentence_kv_fp8 = sentences_by(zoomr::stored_as<zoomr::float8>(zoomr::key_mean{}));
inline constexpr auto sentence_kv_int8 = sentences_by(zoomr::stored_as<zoomr::int8>(zoomr::key_mean{}));
inline constexpr auto quest = zoomr::compose(zoomr::fixed_pages{.longest = 16}, zoomr::key_box{}, zoomr::box_bound{},
                                             zoomr::top_k{.segments = toy ? 2 : 128}, zoomr::every_token{},
                                             zoomr::zones{.sinks = 4, .recent = toy ? 8 : 32, .open = 16});
/// Quest as its kernels do it: boxes in 16 bits, each head alone, 2,048 tokens in pages of 16.
inline constexpr auto quest_published = zoomr::compose(
    zoomr::fixed_pages{.longest = 16}, zoomr::stored_as<zoomr::float16>(zoomr::key_box{}), zoomr::box_bound{},
    zoomr::top_k{.segments = toy ? 2 : 128}, zoomr::every_token{}, zoomr::zones{.open = 16});

/// ZoomR with c = 2 and a window of 256.
template <class Policy>
constexpr auto zooming(Policy published) {
  published.zone.recent = toy ? 8 : 256;
  published.select.segments = 2;
  return published;
}
inline constexpr auto zoomr_mass = zooming(zoomr::presets::zoomr_mass);
inline constexpr auto zoomr_focus = zooming(zoomr::presets::zoomr_focus);

/// Heads that vote by keys: of whole sentences, and of whole thoughts.
template <class Policy>
constexpr auto voting(Policy preset) {
  if (toy) preset.zone.recent = 8, preset.zone.turns = 8;
  return preset;
}
inline constexpr auto sentence_voters = [] {
  auto short_sentences = voting(zoomr::presets::sentence_voters);
  short_sentences.segment.longest = toy ? 8 : 24;
  return short_sentences;
}();
inline constexpr auto zoomr_voters = voting(zoomr::presets::zoomr_voters);

}  // namespace zoomr_bench::timed_policies

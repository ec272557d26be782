// SPDX-License-Identifier: Apache-2.0
// Sessions of all presets are compiled once, in the library decode_sessions; programs only declare them. A policy that
// is not listed here is compiled wherever it is used, as any other.
#pragma once

#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/zoomr.hpp>

#include "session.hpp"

// One preset of each type: window has that of full, zoomr_second_pass that of zoomr_one_pass, zoomr_focus that of
// zoomr_mass, sentence_kv_published that of sentence_kv, lightthinker that of summary_only.
#define DECODE_PRESETS_1(use) use(full) use(summary_only) use(zoomr_one_pass)
#define DECODE_PRESETS_2(use) use(zoomr_mass) use(zoomr_follow) use(sentence_kv) use(sentence_box)
#define DECODE_PRESETS_3(use) use(quest) use(arkvale) use(shadowkv) use(infllm)
#define DECODE_PRESETS_4(use) use(snapkv) use(h2o) use(r_kv) use(raas)

// What takes most of their time is compiled by itself (attention.cpp), optimised in every build but Debug.
#define DECODE_ATTENTION                                                                                         \
  template void gather_attend(view<const token_range>, const paged_kv_lane<float>&, view<const float, 2>, float, \
                              view<attention_state>);
namespace zoomr {
inline namespace v0 {
extern DECODE_ATTENTION
}  // namespace v0
}  // namespace zoomr

#define DECODE_RESIDENT(preset) template class session<zoomr::policy_of<zoomr::presets::preset>>;
#define DECODE_TIERED(preset) \
  template class session<decltype(with_placement(zoomr::presets::preset, zoomr::tiered<>{}))>;
#define DECODE_COMPILE(preset) DECODE_RESIDENT(preset) DECODE_TIERED(preset)
#define DECODE_DECLARE(preset) extern DECODE_RESIDENT(preset) extern DECODE_TIERED(preset)

namespace decode {
DECODE_PRESETS_1(DECODE_DECLARE)
DECODE_PRESETS_2(DECODE_DECLARE)
DECODE_PRESETS_3(DECODE_DECLARE)
DECODE_PRESETS_4(DECODE_DECLARE)
}  // namespace decode

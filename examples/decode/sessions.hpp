// SPDX-License-Identifier: Apache-2.0
// Sessions of all presets are compiled once, in the library decode_sessions; programs only declare them. A policy that
// is not listed here is compiled wherever it is used, as any other.
#pragma once

#include <zoomr/store/tiered.hpp>
#include <zoomr/zoomr.hpp>

#include <type_traits>  // std::remove_const_t

#include "session.hpp"

// One preset of each type, `both`: resident and in tiers. zoomr_second_pass has the type of zoomr_one_pass, zoomr_focus
// that of zoomr_mass, sentence_kv_published that of sentence_kv, lightthinker that of summary_only; in tiers, window
// has that of full.
#define DECODE_PRESETS_1(both, resident) both(full) resident(window) both(summary_only) both(zoomr_one_pass)
#define DECODE_PRESETS_2(both, resident) both(zoomr_mass) both(zoomr_follow) both(sentence_kv) both(sentence_box)
#define DECODE_PRESETS_3(both, resident) both(quest) both(arkvale) both(shadowkv) both(infllm)
#define DECODE_PRESETS_4(both, resident) both(snapkv) both(h2o) both(r_kv) both(raas)

// What takes most of their time is compiled by itself (attention.cpp), optimised in every build but Debug.
#define DECODE_ATTENTION                                                                              \
  template void gather_attend(view<const run>, const paged_lane<float>&, view<const float, 2>, float, \
                              view<attention_state>);
namespace zoomr {
inline namespace v0 {
extern DECODE_ATTENTION
}  // namespace v0
}  // namespace zoomr

#define DECODE_RESIDENT(preset) template class session<std::remove_const_t<decltype(zoomr::policies::preset)>>;
#define DECODE_TIERED(preset) template class session<decltype(with_store(zoomr::policies::preset, zoomr::tiered<>{}))>;
#define DECODE_COMPILE(preset) DECODE_RESIDENT(preset) DECODE_TIERED(preset)
#define DECODE_DECLARE(preset) extern DECODE_RESIDENT(preset) extern DECODE_TIERED(preset)
#define DECODE_DECLARE_RESIDENT(preset) extern DECODE_RESIDENT(preset)

namespace decode {
DECODE_PRESETS_1(DECODE_DECLARE, DECODE_DECLARE_RESIDENT)
DECODE_PRESETS_2(DECODE_DECLARE, DECODE_DECLARE_RESIDENT)
DECODE_PRESETS_3(DECODE_DECLARE, DECODE_DECLARE_RESIDENT)
DECODE_PRESETS_4(DECODE_DECLARE, DECODE_DECLARE_RESIDENT)
}  // namespace decode

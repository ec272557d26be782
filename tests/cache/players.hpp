// SPDX-License-Identifier: Apache-2.0
// The players of the small policies are compiled once, in the library cache_players; tests only declare them.
// A policy that is not listed here is compiled wherever it is played, as any other.
#pragma once

#include <cache/driving.hpp>
#include <cache/small_policies.hpp>

// One of each type: window has that of full, zoomr_focus has that of zoomr_mass, sentence_kv_published that of
// sentence_kv, lightthinker that of summary_only, zoomr_second_pass and by_layer that of zoomr_one_pass.
#define ZOOMR_SMALL_POLICIES_1(use) use(full) use(zoomr_one_pass) use(zoomr_mass) use(zoomr_follow)
#define ZOOMR_SMALL_POLICIES_2(use) use(summary_only) use(sentence_kv) use(sentence_box) use(quest)
#define ZOOMR_SMALL_POLICIES_3(use) use(arkvale) use(shadowkv) use(infllm) use(drifting) use(evicting)
#define ZOOMR_SMALL_POLICIES_4(use) use(snapkv) use(h2o) use(r_kv) use(raas)

#define ZOOMR_PLAYER(policy) template class player<std::remove_const_t<decltype(small::policy)>>;
#define ZOOMR_DECLARE_PLAYER(policy) extern ZOOMR_PLAYER(policy)

// Attention over a KV lane takes most of the time of such tests: it is compiled there too, and at -O3.
#define ZOOMR_LANES(use) use(float) use(bfloat16) use(float16) use(float8) use(int8)
#define ZOOMR_LANE(T)                                                                                        \
  template void gather_attend(view<const token_range>, const paged_kv_lane<T>&, view<const float, 2>, float, \
                              view<attention_state>);
#define ZOOMR_DECLARE_LANE(T) extern ZOOMR_LANE(T)

namespace zoomr {
inline namespace v0 {
ZOOMR_LANES(ZOOMR_DECLARE_LANE)
}  // namespace v0
}  // namespace zoomr

namespace zoomr_test {
ZOOMR_SMALL_POLICIES_1(ZOOMR_DECLARE_PLAYER)
ZOOMR_SMALL_POLICIES_2(ZOOMR_DECLARE_PLAYER)
ZOOMR_SMALL_POLICIES_3(ZOOMR_DECLARE_PLAYER)
ZOOMR_SMALL_POLICIES_4(ZOOMR_DECLARE_PLAYER)
}  // namespace zoomr_test

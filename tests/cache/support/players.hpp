// SPDX-License-Identifier: Apache-2.0
// What drives the caches of each storage type is compiled once, in the library cache_players; tests only declare it. A
// cache over tiers is compiled wherever it is driven.
#pragma once

#include <cache/support/driving.hpp>
#include <cache/support/small_policies.hpp>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // what is compiled once then: cache/compiled/
#define ZOOMR_STORED(use) use(float) use(bfloat16) use(scaled_int8)
#else
#define ZOOMR_STORED(use) use(float) use(bfloat16) use(float16) use(float8) use(int8) use(scaled_int8)
#endif

// Attention over a KV lane takes most of the time of such tests: it is compiled apart, at -O3.
#define ZOOMR_RUN(Run, Hook) \
  template void attend_run(cpu_path, const Run&, const Run&, view<const run_query>, kv_widths, float, hooked<Hook>);
#define ZOOMR_LANE(T) ZOOMR_RUN(page_run<T>, plain_logits)
#define ZOOMR_LANE_OF_MODEL(T) ZOOMR_RUN(page_run<T>, model_logits)
#define ZOOMR_TILE ZOOMR_RUN(page_tile, plain_logits)
#define ZOOMR_TILE_OF_MODEL ZOOMR_RUN(page_tile, model_logits)
#define ZOOMR_DRIVER(T) template class driver<zoomr::any_kv_cache<T>>;

#define ZOOMR_DECLARE_LANE(T) extern ZOOMR_LANE(T) extern ZOOMR_LANE_OF_MODEL(T)
#define ZOOMR_DECLARE_DRIVER(T) extern ZOOMR_DRIVER(T)

namespace zoomr::inline v0::detail {
ZOOMR_STORED(ZOOMR_DECLARE_LANE)
extern ZOOMR_TILE extern ZOOMR_TILE_OF_MODEL
}  // namespace zoomr::inline v0::detail

namespace zoomr_test {
using zoomr::bfloat16, zoomr::float16, zoomr::float8, zoomr::int8, zoomr::scaled_int8;
ZOOMR_STORED(ZOOMR_DECLARE_DRIVER)
}  // namespace zoomr_test

// SPDX-License-Identifier: Apache-2.0
// The caches that the library zoomr_compiled holds, by storage type and placement (docs/engine.md, "Compiled once").
// With ZOOMR_COMPILED they are declared, so that no source compiles them again. Each header that adds to them includes
// this file; that a declaration comes again does not matter. src/CMakeLists.txt compiles one source for each line here.
#if defined(ZOOMR_COMPILED) && defined(ZOOMR_HAS_CACHE)
#ifdef ZOOMR_HAS_GROUPS
#define ZOOMR_CACHE(...)                               \
  extern template class any_kv_cache<__VA_ARGS__>;     \
  extern template class step<__VA_ARGS__>;             \
  extern template class grouped_kv_cache<__VA_ARGS__>; \
  extern template class grouped_step<__VA_ARGS__>;
#else
#define ZOOMR_CACHE(...)                           \
  extern template class any_kv_cache<__VA_ARGS__>; \
  extern template class step<__VA_ARGS__>;
#endif
namespace zoomr::inline v0 {

// Scores of most policies are products of queries and summaries.
extern template void detail::products(cpu_path, view<const float, 2>, const float*, std::int64_t, view<float, 2>);

ZOOMR_CACHE(float, placement)
ZOOMR_CACHE(float16, placement)
ZOOMR_CACHE(bfloat16, placement)
ZOOMR_CACHE(float8, placement)
ZOOMR_CACHE(int8, placement)
ZOOMR_CACHE(scaled_int8, placement)
ZOOMR_CACHE(q8_0, placement)
ZOOMR_CACHE(q4_0, placement)
ZOOMR_CACHE(mxfp8, placement)
#ifdef ZOOMR_HAS_TIERED
ZOOMR_CACHE(float, tiered<>)
ZOOMR_CACHE(float16, tiered<>)
ZOOMR_CACHE(bfloat16, tiered<>)
#endif
#ifdef ZOOMR_HAS_ENGINE_PAGES
ZOOMR_CACHE(float, engine_pages)
ZOOMR_CACHE(float16, engine_pages)
ZOOMR_CACHE(bfloat16, engine_pages)
#endif

}  // namespace zoomr::inline v0
#undef ZOOMR_CACHE
#endif

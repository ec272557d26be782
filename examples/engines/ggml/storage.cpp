// SPDX-License-Identifier: Apache-2.0
// The caches of all storage types that are compiled, under all policies that are: one source, since what is of a policy
// is compiled once for all types. What is of a type is elsewhere: in sources of its own, or in zoomr::compiled.
#include "storage.hpp"

namespace adaptor {
namespace {

template <class T>
std::unique_ptr<cache> opened(const cache_settings& settings) {
  return std::make_unique<typed_cache<T>>(settings);
}

}  // namespace

std::unique_ptr<cache> open_cache(const cache_settings& settings, storage stored) {
#ifdef ZOOMR_GGML_F32
  if (stored == storage::f32) return opened<float>(settings);
#endif
#ifdef ZOOMR_GGML_F16
  if (stored == storage::f16) return opened<zoomr::float16>(settings);
#endif
#ifdef ZOOMR_GGML_Q8_0
  if (stored == storage::q8_0) return opened<zoomr::q8_0>(settings);
#endif
#ifdef ZOOMR_GGML_Q4_0
  if (stored == storage::q4_0) return opened<zoomr::q4_0>(settings);
#endif
  decode::fail("type_kv is not compiled: it is not in ZOOMR_GGML_TYPES");
}

}  // namespace adaptor

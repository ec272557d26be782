// SPDX-License-Identifier: Apache-2.0
// The caches of all storage types: one source, since what is of a policy alone is compiled once for all of them.
#include "storage.hpp"

std::unique_ptr<adaptor::cache> adaptor::open_f32(const cache_settings& settings) {
  return std::make_unique<typed_cache<float>>(settings);
}
std::unique_ptr<adaptor::cache> adaptor::open_f16(const cache_settings& settings) {
  return std::make_unique<typed_cache<zoomr::float16>>(settings);
}
std::unique_ptr<adaptor::cache> adaptor::open_q8_0(const cache_settings& settings) {
  return std::make_unique<typed_cache<zoomr::q8_0>>(settings);
}
std::unique_ptr<adaptor::cache> adaptor::open_q4_0(const cache_settings& settings) {
  return std::make_unique<typed_cache<zoomr::q4_0>>(settings);
}

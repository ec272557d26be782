// SPDX-License-Identifier: Apache-2.0
#include "storage.hpp"

std::unique_ptr<adaptor::cache> adaptor::open_f16(const cache_settings& settings) {
  return std::make_unique<typed_cache<zoomr::float16>>(settings);
}

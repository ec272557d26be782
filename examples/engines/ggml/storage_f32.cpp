// SPDX-License-Identifier: Apache-2.0
#include "storage.hpp"

std::unique_ptr<adaptor::cache> adaptor::open_f32(const cache_settings& settings) {
  return std::make_unique<typed_cache<float>>(settings);
}

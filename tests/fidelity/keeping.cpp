// SPDX-License-Identifier: Apache-2.0
// Presets that evict tokens for good.
#include <zoomr/presets/h2o.hpp>
#include <zoomr/presets/r_kv.hpp>
#include <zoomr/presets/snapkv.hpp>

#include "driver.hpp"

namespace fidelity {

std::vector<preset> keeping_presets() {
  namespace presets = zoomr::presets;
  return {preset_of<presets::snapkv>("snapkv"), preset_of<presets::h2o>("h2o"), preset_of<presets::r_kv>("r_kv")};
}

}  // namespace fidelity

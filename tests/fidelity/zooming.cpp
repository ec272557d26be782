// SPDX-License-Identifier: Apache-2.0
// Presets whose segments are thoughts, and those without segments.
#include <zoomr/presets/full.hpp>
#include <zoomr/presets/window.hpp>
#include <zoomr/presets/zoomr_thoughts.hpp>

#include "driver.hpp"

namespace fidelity {

std::vector<preset> zooming_presets() {
  namespace presets = zoomr::presets;
  return {preset_of<presets::full>("full"),
          preset_of<presets::window>("window"),
          preset_of<presets::zoomr_one_pass>("zoomr_one_pass"),
          preset_of<presets::zoomr_second_pass>("zoomr_second_pass"),
          preset_of<presets::zoomr_mass>("zoomr_mass"),
          preset_of<presets::zoomr_focus>("zoomr_focus")};
}

}  // namespace fidelity

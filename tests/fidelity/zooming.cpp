// SPDX-License-Identifier: Apache-2.0
// Presets whose segments are thoughts, and those without segments.
#include <zoomr/policies/full.hpp>
#include <zoomr/policies/lightthinker.hpp>
#include <zoomr/policies/window.hpp>
#include <zoomr/policies/zoomr.hpp>

#include "driver.hpp"

namespace fidelity {

std::vector<preset> zooming_presets() {
  namespace policies = zoomr::policies;
  return {preset_of<policies::full>("full"),
          preset_of<policies::window>("window"),
          preset_of<policies::zoomr_one_pass>("zoomr_one_pass"),
          preset_of<policies::zoomr_second_pass>("zoomr_second_pass"),
          preset_of<policies::zoomr_mass>("zoomr_mass"),
          preset_of<policies::zoomr_focus>("zoomr_focus"),
          preset_of<policies::lightthinker>("lightthinker")};
}

}  // namespace fidelity

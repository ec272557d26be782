// SPDX-License-Identifier: Apache-2.0
// Presets that give tokens up for good.
#include <zoomr/policies/h2o.hpp>
#include <zoomr/policies/r_kv.hpp>
#include <zoomr/policies/raas.hpp>
#include <zoomr/policies/snapkv.hpp>

#include "driver.hpp"

namespace fidelity {

std::vector<preset> keeping_presets() {
  namespace policies = zoomr::policies;
  return {preset_of<policies::snapkv>("snapkv"), preset_of<policies::h2o>("h2o"), preset_of<policies::r_kv>("r_kv"),
          preset_of<policies::raas>("raas")};
}

}  // namespace fidelity

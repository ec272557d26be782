// SPDX-License-Identifier: Apache-2.0
// Presets that choose among sentences and pages at every token.
#include <zoomr/presets/arkvale.hpp>
#include <zoomr/presets/quest.hpp>
#include <zoomr/presets/sentence_kv.hpp>

#include "driver.hpp"

namespace fidelity {

std::vector<preset> choosing_presets() {
  namespace presets = zoomr::presets;
  return {preset_of<presets::sentence_kv>("sentence_kv"),
          preset_of<presets::sentence_kv_published>("sentence_kv_published"), preset_of<presets::quest>("quest"),
          preset_of<presets::arkvale>("arkvale")};
}

}  // namespace fidelity

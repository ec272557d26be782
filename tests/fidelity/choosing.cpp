// SPDX-License-Identifier: Apache-2.0
// Presets that choose among sentences and pages at every token.
#include "driver.hpp"

namespace fidelity {

std::vector<preset> choosing_presets() { return presets_of<share::choosing>(); }

}  // namespace fidelity

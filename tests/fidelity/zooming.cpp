// SPDX-License-Identifier: Apache-2.0
// Presets whose segments are thoughts, and those without segments.
#include "driver.hpp"

namespace fidelity {

std::vector<preset> zooming_presets() { return presets_of<share::zooming>(); }

}  // namespace fidelity

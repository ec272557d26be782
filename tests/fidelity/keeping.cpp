// SPDX-License-Identifier: Apache-2.0
// Presets that evict tokens for good.
#include "driver.hpp"

namespace fidelity {

std::vector<preset> keeping_presets() { return presets_of<share::keeping>(); }

}  // namespace fidelity

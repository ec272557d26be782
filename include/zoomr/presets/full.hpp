// SPDX-License-Identifier: Apache-2.0
// L5. The full cache: every token attends to everything. The baseline of all others.
#pragma once

#include <zoomr/policy/compose.hpp>

namespace zoomr::inline v0::presets {

inline constexpr auto full = compose(zones{.recent = unlimited});

}  // namespace zoomr::inline v0::presets

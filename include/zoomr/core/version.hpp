// SPDX-License-Identifier: Apache-2.0
// L0. The version, and the inline namespace that keeps two versions apart in one program: names of both differ for the
// linker, while sources use zoomr:: alone.
#pragma once

#define ZOOMR_VERSION_MAJOR 0
#define ZOOMR_VERSION_MINOR 1
#define ZOOMR_VERSION_PATCH 0

namespace zoomr {
inline namespace v0 {}
}  // namespace zoomr

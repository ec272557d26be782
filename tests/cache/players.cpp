// SPDX-License-Identifier: Apache-2.0
// What drives caches, for cache/players.hpp.
#include <cache/players.hpp>

namespace zoomr_test {
ZOOMR_STORED(ZOOMR_DRIVER)
}  // namespace zoomr_test

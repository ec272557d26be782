// SPDX-License-Identifier: Apache-2.0
// What drives caches, for cache/support/players.hpp.
#include <cache/support/players.hpp>

namespace zoomr_test {
ZOOMR_STORED(ZOOMR_DRIVER)
}  // namespace zoomr_test

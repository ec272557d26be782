// SPDX-License-Identifier: Apache-2.0
// Attention over the KV lanes of each storage type, for cache/support/players.hpp.
#include <cache/support/players.hpp>

namespace zoomr::inline v0::detail {
ZOOMR_STORED(ZOOMR_LANE)
ZOOMR_STORED(ZOOMR_LANE_OF_MODEL)
ZOOMR_TILE
ZOOMR_TILE_OF_MODEL
}  // namespace zoomr::inline v0::detail

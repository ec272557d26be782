// SPDX-License-Identifier: Apache-2.0
// Sessions whose keys and values move between tiers.
#include "session.hpp"

namespace decode {
template class session<zoomr::tiered<>>;
}  // namespace decode

template class zoomr::any_kv_cache<float, zoomr::tiered<>>;
template class zoomr::step<float, zoomr::tiered<>>;

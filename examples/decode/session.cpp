// SPDX-License-Identifier: Apache-2.0
// Sessions, compiled once for all programs.
#include "session.hpp"

namespace decode {
template class session<zoomr::placement>;
template class session<zoomr::tiered<>>;
}  // namespace decode

template class zoomr::any_kv_cache<float, zoomr::placement>;
template class zoomr::any_kv_cache<float, zoomr::tiered<>>;
template class zoomr::step<float, zoomr::placement>;
template class zoomr::step<float, zoomr::tiered<>>;

// SPDX-License-Identifier: Apache-2.0
// Sessions whose keys and values are in memory as they come, compiled once for all programs.
#include "session.hpp"

namespace decode {
template class session<zoomr::placement>;
}  // namespace decode

template class zoomr::any_kv_cache<float, zoomr::placement>;
template class zoomr::step<float, zoomr::placement>;

// SPDX-License-Identifier: Apache-2.0
// Sessions, compiled once for all programs.
#include "session.hpp"

namespace decode {
template class session<zoomr::placement>;
template class session<zoomr::tiered<>>;
}  // namespace decode

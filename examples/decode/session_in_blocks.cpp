// SPDX-License-Identifier: Apache-2.0
// Sessions whose keys and values are stored in blocks of 8 or 4 bits for a number.
#include "session.hpp"

namespace decode {
template class session<zoomr::placement, zoomr::q8_0>;
template class session<zoomr::placement, zoomr::q4_0>;
template class session<zoomr::placement, zoomr::mxfp8>;
}  // namespace decode

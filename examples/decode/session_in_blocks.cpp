// SPDX-License-Identifier: Apache-2.0
// Sessions whose keys and values are stored in blocks.
#include "session.hpp"

namespace decode {
#define DECODE_DEFINE_SESSION(T) template class session<zoomr::placement, T>;
DECODE_IN_BLOCKS(DECODE_DEFINE_SESSION)
}  // namespace decode

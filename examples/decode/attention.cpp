// SPDX-License-Identifier: Apache-2.0
// Attention over one KV head's chosen tokens, for sessions.hpp.
#include "sessions.hpp"

namespace zoomr {
inline namespace v0 {
DECODE_ATTENTION
}  // namespace v0
}  // namespace zoomr

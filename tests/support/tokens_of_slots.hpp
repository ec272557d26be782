// SPDX-License-Identifier: Apache-2.0
// A list of tokens for gather_attend that is not the library's: as an engine may make one (attention/token_list.cuh).
#pragma once

#include <zoomr/core/view.hpp>

namespace zoomr_test {

using zoomr::index_t;
using zoomr::view;

/// Tokens one by one, as slots of the pool; what comes after them, usually -1, is never looked at.
struct tokens_of_slots {
  view<const index_t> slots;
  index_t tokens = 0;

  ZOOMR_HD index_t count() const { return tokens; }
  ZOOMR_HD index_t slot(index_t i) const { return slots[i]; }
};

}  // namespace zoomr_test

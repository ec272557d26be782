// SPDX-License-Identifier: Apache-2.0
// L4. No segments: everything is in one open stretch (for policies that only have zones).
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Never closes a segment but at the ends of spans (`step_item::spans`). The open one begins at 0 all the same, so that
/// `zones{.open = unlimited}` attends everything.
struct unsegmented {
  using role = role::segmenter;
  static constexpr const char* name = "unsegmented";
  struct state {
    index_t begin = 0;  // where the last span has begun or ended
    friend constexpr bool operator==(const state&, const state&) = default;
  };

  static constexpr index_t longest = unlimited;

  ZOOMR_HD constexpr void feed(state&, token_class, index_t, closings&) const {}
  ZOOMR_HD constexpr void end_of_prompt(state&, index_t, closings&) const {}
  ZOOMR_HD constexpr void cut(state& open, index_t position, closings& out) const {
    if (open.begin < position) out.add({open.begin, position, position, open.begin, position, position});
    open.begin = position;
  }
  ZOOMR_HD constexpr index_t open_begin(const state&) const { return 0; }
  friend constexpr bool operator==(const unsegmented&, const unsegmented&) = default;
};

static_assert(segmenter<unsegmented>);

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// A segmenter that decides late where a segment has ended: what queries have scored before is then of other tokens, if
// a rollback takes the decision back.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr_test {

/// Behind ten tokens or more a delimiter closes the first three, a mark the first five.
struct late_ends {
  using role = zoomr::role::segmenter;
  static constexpr const char* name = "late_ends";
  static constexpr bool reads_classes = true;
  struct state {
    zoomr::index_t begin = 0;
    friend constexpr bool operator==(const state&, const state&) = default;
  };

  zoomr::index_t longest = 16;  // tokens, with those that come before the decision

  ZOOMR_HD constexpr void feed(state& open, zoomr::token_class classes, zoomr::index_t position,
                               zoomr::closings& out) const {
    using enum zoomr::token_class;
    const zoomr::index_t tokens = position + 1 - open.begin;
    if (tokens < 10) return;
    if (tokens >= longest || has(classes, delimiter)) {
      close(open, open.begin + 3, position, out);
    } else if (has(classes, mark)) {
      close(open, open.begin + 5, position, out);
    }
  }
  ZOOMR_HD constexpr void end_of_prompt(state& open, zoomr::index_t position, zoomr::closings& out) const {
    if (open.begin <= position) close(open, position + 1, position, out);
  }
  ZOOMR_HD constexpr zoomr::index_t open_begin(const state& open) const { return open.begin; }
  constexpr const char* problem() const { return longest < 10 ? "late_ends: longest must be at least 10" : nullptr; }
  static constexpr void each_field(auto& self, auto visit) { visit("longest", self.longest); }
  friend constexpr bool operator==(const late_ends&, const late_ends&) = default;

 private:
  ZOOMR_HD static constexpr void close(state& open, zoomr::index_t end, zoomr::index_t position, zoomr::closings& out) {
    out.add({open.begin, end, end, open.begin, end, position});
    open.begin = end;
  }
};
static_assert(zoomr::segmenter<late_ends>);

}  // namespace zoomr_test

// SPDX-License-Identifier: Apache-2.0
// L4. Segments of a fixed number of tokens, counted from position 0 on, whatever the tokens are.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Closes a segment at every `longest` tokens; the end of the prompt does not close one.
/// @source  Quest, arXiv:2406.10774 (pages of 16); ArkVale (32); InfLLM (128)
struct fixed_pages {
  using role = role::segmenter;
  static constexpr const char* name = "fixed_pages";
  struct state {
    index_t begin = 0;
    friend constexpr bool operator==(const state&, const state&) = default;
  };

  index_t longest = 16;  // tokens of each page

  ZOOMR_HD constexpr void feed(state& open, token_class, index_t position, closings& out) const {
    const index_t end = position + 1;
    if (end - open.begin < longest) return;
    out.add({open.begin, end, end, open.begin, end, position});
    open.begin = end;
  }
  ZOOMR_HD constexpr void end_of_prompt(state&, index_t, closings&) const {}
  ZOOMR_HD constexpr void cut(state& open, index_t position, closings& out) const {
    if (open.begin < position) out.add({open.begin, position, position, open.begin, position, position});
    open.begin = position;
  }
  ZOOMR_HD constexpr index_t open_begin(const state& open) const { return open.begin; }
  constexpr index_t shortest() const { return longest; }
  constexpr const char* problem() const { return longest < 1 ? "fixed_pages: longest must be at least 1" : nullptr; }
  static constexpr void each_field(auto& self, auto visit) { visit("longest", self.longest); }
  friend constexpr bool operator==(const fixed_pages&, const fixed_pages&) = default;
};

static_assert(segmenter<fixed_pages>);

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L4. Whole segments until a budget is full.
#pragma once

#include <zoomr/policy/take_best.hpp>
#include <zoomr/policy/zones.hpp>

namespace zoomr::inline v0 {

/// Takes whole segments, best first, until `tokens` tokens are attended, zones included; of the last one its
/// first tokens, or nothing if `cut` is off. Zones are attended in any case: the budget holds where sinks and the
/// larger of window and open segment fit into it, and what they leave is what can be chosen.
/// @source  SentenceKV, arXiv:2504.00970: as published, with the cut of the released code
struct fill_budget {
  using role = role::selector;
  static constexpr const char* name = "fill_budget";
  index_t tokens = 1024;  // tau
  bool cut = true;

  /// The room that is left; none or less where zones and summaries fill the budget, and then nothing is taken.
  /// @param room_used  tokens attended in any case
  ZOOMR_HD constexpr take_limits limits(index_t room_used) const { return {.room = tokens - room_used, .cut = cut}; }
  void choose(best_first& order, const selection_input& input, selection_row& row) const {
    take_best(order, limits(input.room_used), input, row);
  }
  constexpr const char* problem() const { return tokens < 1 ? "fill_budget: tokens must be at least 1" : nullptr; }
  /// The zones count in the budget, so they must fit into it.
  constexpr const char* problem_with(const zones& zone) const {
    const bool fits = tokens == unlimited || (zone.sinks <= tokens && zone.recent <= tokens - zone.sinks);
    return fits ? nullptr : "the budget is smaller than sinks + window: raise tokens, or lower sinks or recent";
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("tokens", self.tokens);
    visit("cut", self.cut);
  }
  friend constexpr bool operator==(const fill_budget&, const fill_budget&) = default;
};

static_assert(limited_selector<fill_budget>);

}  // namespace zoomr::inline v0

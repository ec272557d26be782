// SPDX-License-Identifier: Apache-2.0
// L4. At the ends of sentences: what is chosen there stays active until the next one.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Chooses again at each delimiter, at each mark, whatever comes after it, and at the latest after `at_most` tokens.
///
/// A choice for all layers is complete only after the delimiter's whole pass: it serves the following tokens
/// (stale), or with `second_pass` the delimiter is passed once more under it. With `at_most` = 1 it is `every_token`: a
/// choice for one layer or less serves its own token alone.
/// @cost    a choice at each delimiter; with `second_pass` and one selection for all layers, a pass more there
/// @source  ZoomR, arXiv:2604.10898: which of the two is meant, the paper leaves open. Differs: `at_most` is ours
struct boundaries {
  using role = role::refresh;
  static constexpr const char* name = "boundaries";
  static constexpr bool reads_classes = true;

  bool second_pass = false;
  index_t at_most = unlimited;  // tokens

  ZOOMR_HD constexpr refresh_action due(const token_event& event) const {
    const bool chooses =
        has(event.classes, token_class::delimiter | token_class::mark) || event.since_choice >= at_most;
    return chooses ? refresh_action::choose : refresh_action::keep;
  }
  constexpr bool each_token() const { return at_most == 1; }
  constexpr const char* problem() const { return at_most < 1 ? "boundaries: at_most must be at least 1" : nullptr; }
  static constexpr void each_field(auto& self, auto visit) {
    visit("second_pass", self.second_pass);
    visit("at_most", self.at_most);
  }
  friend constexpr bool operator==(const boundaries&, const boundaries&) = default;
};

static_assert(refresh_rule<boundaries>);

}  // namespace zoomr::inline v0

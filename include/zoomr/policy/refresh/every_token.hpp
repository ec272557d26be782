// SPDX-License-Identifier: Apache-2.0
// L4. At every token. Nothing stays active where each layer or head chooses for itself: a choice is made, read, and
// gone within the pass.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Chooses again at each token. A choice for one layer or less serves its own token; one for all layers serves
/// the next token, or with `second_pass` its own, which is then passed twice.
///
/// With `everything_until` > 0, everything kept is attended while the open segment has at most so many tokens; at a
/// delimiter it counts as empty, since the next one begins after it. Such a token makes no choice.
/// @cost    a choice at each token, which reads the whole index
/// @source  SentenceKV, arXiv:2504.00970; everything_until = 1 in its released code: the delimiter's own pass and that
///          of the token after it
struct every_token {
  using role = role::refresh;
  static constexpr const char* name = "every_token";

  bool second_pass = false;
  index_t everything_until = 0;  // tokens; 0: off

  ZOOMR_HD constexpr refresh_action due(const token_event& event) const {
    const index_t open = has(event.classes, token_class::delimiter) ? 0 : event.open_tokens;
    const bool dense = everything_until > 0 && open <= everything_until;
    return dense ? refresh_action::everything : refresh_action::choose;
  }
  static constexpr bool each_token() { return true; }
  constexpr const char* problem() const {
    return everything_until < 0 ? "every_token: everything_until cannot be negative" : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("second_pass", self.second_pass);
    visit("everything_until", self.everything_until);
  }
  friend constexpr bool operator==(const every_token&, const every_token&) = default;
};

static_assert(refresh_rule<every_token>);

}  // namespace zoomr::inline v0

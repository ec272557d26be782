// SPDX-License-Identifier: Apache-2.0
// L3. When a posterior is unsure. What its choice serves attends everything then.
#pragma once

#include <zoomr/math/order.hpp>

#include <limits>  // std::numeric_limits

namespace zoomr::inline v0 {

/// A bound on the entropy of a posterior, and the logit of one more class: none of these segments. Entropies and votes
/// are integers, so that host and device agree on each choice.
struct posterior_gate {
  static constexpr votes_t unbounded = (std::numeric_limits<votes_t>::max)();

  votes_t most = unbounded;  // entropy with which it is sure, in units of 2^-40 bits
  float none = -infinity;    // logit; -infinity: there is no such class

  constexpr posterior_gate() = default;
  /// @param bits, logit  config::voters_unsure and config::voters_none
  constexpr posterior_gate(float bits, float logit)
      : most(bits < 64.0f ? static_cast<votes_t>(double{bits} * 1099511627776.0 + 0.5) : unbounded), none(logit) {}

  /// False: it finds every posterior sure.
  ZOOMR_HD constexpr bool bounds() const { return most < unbounded || none > -infinity; }

  /// The entropy exceeds the bound, or none has more votes than any segment: of equal votes a segment's come first.
  /// Where no segment is eligible nothing is unsure.
  /// @param entropy  in units of 2^-40 bits
  /// @param of_none  votes of that class
  /// @param largest  votes of the best segment, or not_eligible
  ZOOMR_HD constexpr bool unsure(votes_t entropy, votes_t of_none, votes_t largest) const {
    return largest != not_eligible && (of_none > largest || entropy > most);
  }
  friend constexpr bool operator==(const posterior_gate&, const posterior_gate&) = default;
};

}  // namespace zoomr::inline v0

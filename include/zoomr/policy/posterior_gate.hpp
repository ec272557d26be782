// SPDX-License-Identifier: Apache-2.0
// L3. When a posterior is unsure. What its choice serves attends everything then.
#pragma once

#include <zoomr/math/functions.hpp>
#include <zoomr/math/order.hpp>

#include <limits>  // std::numeric_limits

namespace zoomr::inline v0 {

/// One more class of a posterior: none of these segments. Its logit falls with their number, as the shares of heads do
/// that find nothing.
struct none_class {
  float logit = -infinity;  // among one segment; -infinity: there is no such class
  float slope = 0.0f;       // what the natural logarithm of their number takes off

  ZOOMR_HD constexpr bool exists() const { return logit > -infinity; }
  /// @param segments  that can be chosen, at least 1
  ZOOMR_HD float among(index_t segments) const {
    return slope == 0.0f ? logit : fused(-slope, logarithm(static_cast<float>(segments)), logit);
  }
  friend constexpr bool operator==(const none_class&, const none_class&) = default;
};

/// A bound on the entropy of a posterior, and its class none. Entropies and votes are integers, so that host and device
/// agree on each choice.
struct posterior_gate {
  static constexpr votes_t unbounded = (std::numeric_limits<votes_t>::max)();

  votes_t most = unbounded;  // entropy with which it is sure, in units of 2^-40 bits
  none_class none;

  constexpr posterior_gate() = default;
  /// @param bits  config::voters_unsure
  constexpr posterior_gate(float bits, none_class none_of_these)
      : most(bits < 64.0f ? static_cast<votes_t>(double{bits} * 1099511627776.0 + 0.5) : unbounded),
        none(none_of_these) {}

  /// False: it finds every posterior sure.
  ZOOMR_HD constexpr bool bounds() const { return most < unbounded || none.exists(); }

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

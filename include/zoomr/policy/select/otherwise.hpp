// SPDX-License-Identifier: Apache-2.0
// L4. Two selectors: what the heads that vote have found, and where their posterior is flat more beside it.
#pragma once

#include <zoomr/math/softmax.hpp>
#include <zoomr/policy/take_best.hpp>

namespace zoomr::inline v0 {

/// Made by `otherwise`. The first one takes segments by the posterior. Where the posterior's entropy is above `flat`
/// bits, or no segment's share is known, the second one goes on by the second rule's votes with what is left: segments
/// that are taken count in its room.
template <limited_selector First, limited_selector Second>
struct selector_pair : First, Second {
  using role = role::selector;
  static constexpr const char* name = name_of<First>();
  static constexpr const char* second_name = name_of<Second>();
  static constexpr bool is_pair = true;
  static constexpr bool needs_counts = true;
  float flat = infinity;  // bits; infinity: never

  constexpr index_t most_segments() const { return unlimited; }
  ZOOMR_HD constexpr take_limits limits(index_t room_used) const { return First::limits(room_used); }
  ZOOMR_HD constexpr take_limits limits_otherwise(index_t room_used) const { return Second::limits(room_used); }
  /// @param all      the posterior's votes together; 0: nothing is known
  /// @param entropy  of the posterior, in units of 2^-40 bits
  ZOOMR_HD constexpr bool unsure(votes_t all, votes_t entropy) const {
    return flat < infinity && (all == 0 || static_cast<double>(entropy) > static_cast<double>(flat) * 1099511627776.0);
  }
  void choose(best_first& order, const selection_input& input, selection_row& row) const {
    First::choose(order, input, row);
  }
  void choose_otherwise(best_first& order, const selection_input& input, selection_row& row) const {
    Second::choose(order, input, row);
  }

  constexpr const char* problem() const {
    if (!(flat >= 0.0f)) return "otherwise: flat, a number of bits, must be at least 0";
    const char* const sentence = problem_of(static_cast<const First&>(*this));
    return sentence != nullptr ? sentence : problem_of(static_cast<const Second&>(*this));
  }
  template <class Zones>
  constexpr const char* problem_with(const Zones& zone) const {
    if constexpr (requires(const Second second) { second.problem_with(zone); }) return Second::problem_with(zone);
    return nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    each_field_of(base_of<First>(self), visit);
    each_field_of(base_of<Second>(self), visit);
    visit("flat", self.flat);
  }
  friend constexpr bool operator==(const selector_pair&, const selector_pair&) = default;
};

/// What is taken by the posterior, and what is added where its entropy is above `flat` bits.
template <limited_selector First, limited_selector Second>
constexpr selector_pair<First, Second> otherwise(First first, Second second, float flat = infinity) {
  return {first, second, flat};
}

}  // namespace zoomr::inline v0

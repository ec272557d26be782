// SPDX-License-Identifier: Apache-2.0
// L4. Two aggregators: one hears the heads that vote, the other counts all heads where these do not know.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Made by `otherwise`. Each has votes of its own: those of the first one are the posterior, and say whether it is
/// flat.
template <share_aggregator First, score_aggregator Second>
struct aggregator_pair : First, Second {
  static_assert(First::counts && Second::counts, "otherwise: votes of both aggregators must add up");
  using role = role::aggregator;
  static constexpr const char* name = name_of<First>();
  static constexpr const char* second_name = name_of<Second>();
  static constexpr bool is_pair = true;
  static constexpr scope per = scope::sequence;
  static constexpr votes_t least = First::least;
  static constexpr votes_t least_otherwise = Second::least;
  static constexpr bool counts = true;

  constexpr const char* problem() const {
    if (Second::per != scope::sequence) {
      return "otherwise: the second aggregator shares a choice that serves all layers (scope::sequence)";
    }
    const char* const sentence = problem_of(static_cast<const First&>(*this));
    return sentence != nullptr ? sentence : problem_of(static_cast<const Second&>(*this));
  }
  static constexpr void each_field(auto& self, auto visit) {
    each_field_of(base_of<First>(self), visit);
    each_field_of(base_of<Second>(self), visit);
  }
  friend constexpr bool operator==(const aggregator_pair&, const aggregator_pair&) = default;
};

/// Who is heard first, and who is counted where their posterior is flat.
template <share_aggregator First, score_aggregator Second>
constexpr aggregator_pair<First, Second> otherwise(First first, Second second) {
  return {first, second};
}

}  // namespace zoomr::inline v0

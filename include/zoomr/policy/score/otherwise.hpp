// SPDX-License-Identifier: Apache-2.0
// L4. Two scorers: keys are scored for heads that vote, and summaries for all heads where these do not know.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Made by `otherwise`. The policy has a summarizer for the second one.
template <key_scorer First, scorer Second>
requires(!key_scorer<Second>) struct scorer_pair : First, Second {
  using role = role::scorer;
  using summary = typename Second::summary;
  static constexpr const char* name = name_of<First>();
  static constexpr const char* second_name = name_of<Second>();
  static constexpr bool is_pair = true;
  static constexpr bool reads_keys = true;

  constexpr const char* problem() const {
    const char* const sentence = problem_of(static_cast<const First&>(*this));
    return sentence != nullptr ? sentence : problem_of(static_cast<const Second&>(*this));
  }
  static constexpr void each_field(auto& self, auto visit) {
    each_field_of(base_of<First>(self), visit);
    each_field_of(base_of<Second>(self), visit);
  }
  friend constexpr bool operator==(const scorer_pair&, const scorer_pair&) = default;
};

/// What heads that vote are scored by, and where their posterior is flat all heads by summaries.
/// @code  compose(sentences{}, key_box{}, otherwise(key_mass{}, box_bound{}),
///                otherwise(head_posterior{}, head_mass{}), otherwise(top_p{}, fill_budget{}), ...)  @endcode
template <key_scorer First, scorer Second>
constexpr scorer_pair<First, Second> otherwise(First first, Second second) {
  return {first, second};
}

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L4. Heads weigh as much as they care.
#pragma once

#include <zoomr/concepts.hpp>
#include <zoomr/math/softmax.hpp>

#include <cmath>  // std::sqrt

namespace zoomr {
inline namespace v0 {

/// Each query head spreads a mass of 1 over the segments: the softmax of q . summary / sqrt(head_dim) +
/// ln(tokens), an estimate of the attention that each would get. Masses add up in units of 2^-24.
///
/// A head that looks at one thought decides more than ten that look at none. NaN scores count as nothing.
/// @source  zoomr
struct head_mass {
  using role = role::consensus;
  static constexpr const char* name = "head_mass";
  static constexpr tally least = 0;  // even without mass: if there is room, nothing is left out
  static constexpr bool counts = true;
  static constexpr float unit = 16777216.0f;  // 2^24

  scope per = scope::sequence;

  void add(view<const float, 2> scores, view<const index> tokens, index head_dim, view<tally> tallies,
           view<index>) const {
    const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    for (index head = 0; head < scores.extent(0); ++head) {
      const softmax mass(tallies.size(), [&](index id) {
        if (tallies[id] == not_eligible) return not_a_number;
        return fused(scores(head, id), scale, logarithm(static_cast<float>(tokens[id])));
      });
      if (mass.sum() == 0.0f) continue;
      for (index id = 0; id < tallies.size(); ++id) {
        if (tallies[id] != not_eligible) tallies[id] += static_cast<tally>(mass.share(id) * unit + 0.5f);
      }
    }
  }
  constexpr const char* problem() const { return nullptr; }
  static constexpr void each_field(auto& self, auto visit) { visit("per", self.per); }
  friend constexpr bool operator==(const head_mass&, const head_mass&) = default;
};

static_assert(consensus<head_mass>);

}  // namespace v0
}  // namespace zoomr

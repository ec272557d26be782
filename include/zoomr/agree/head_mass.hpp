// SPDX-License-Identifier: Apache-2.0
// L4. Heads weigh as much as they care.
#pragma once

#include <zoomr/concepts.hpp>
#include <zoomr/math/softmax.hpp>

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
    const float by_dim = scale(head_dim);
    for (index head = 0; head < scores.extent(0); ++head) {
      const softmax mass(tallies.size(), [&](index id) -> softmax_logit {
        if (tallies[id] == not_eligible) return {};
        return logit(scores(head, id), by_dim, tokens[id]);
      });
      if (mass.sum() == 0.0f) continue;
      for (index id = 0; id < tallies.size(); ++id) {
        if (tallies[id] != not_eligible) tallies[id] += counted(mass.share(id));
      }
    }
  }

  // One segment of one head, for the device's twin too.
  ZOOMR_HD static float scale(index head_dim) { return quotient(1.0f, square_root(static_cast<float>(head_dim))); }
  ZOOMR_HD static float logit(float score, float by_dim, index tokens) {
    return fused(score, by_dim, logarithm(static_cast<float>(tokens)));
  }
  ZOOMR_HD static tally counted(float share) { return static_cast<tally>(share * unit + 0.5f); }

  constexpr const char* problem() const { return nullptr; }
  static constexpr void each_field(auto& self, auto visit) { visit("per", self.per); }
  friend constexpr bool operator==(const head_mass&, const head_mass&) = default;
};

static_assert(consensus<head_mass>);

}  // namespace v0
}  // namespace zoomr

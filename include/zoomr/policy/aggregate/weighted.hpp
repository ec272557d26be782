// SPDX-License-Identifier: Apache-2.0
// L4. An aggregator that counts heads alike, made one of voters alone: of heads with a weight in config.voters, each by
// its weight.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Another aggregator over the heads with a weight in `config.voters`; made by `weighted`.
template <weight_taker Inner>
struct weighted_heads : Inner {
  static constexpr bool weighs = true;

  constexpr const char* problem() const {
    if (this->per != scope::sequence) {
      return "weighted: heads vote for all layers together (scope::sequence), since a layer may have none with a "
             "weight";
    }
    return problem_of(static_cast<const Inner&>(*this));
  }
  friend constexpr bool operator==(const weighted_heads&, const weighted_heads&) = default;
};

/// The same rule, `head_votes` or `head_mass`, of voters alone. Weights are counted in 65536ths of the largest one: a
/// head of half the weight gives half a vote, or half its mass. Heads without a weight are not scored by the host; on a
/// device KV heads without one are not.
/// @code  compose(thoughts{}, key_mean{}, weighted(head_votes{.k = 2}), top_k{.segments = 2}, ...)  @endcode
template <weight_taker Inner>
constexpr weighted_heads<Inner> weighted(Inner inner) {
  return {inner};
}

}  // namespace zoomr::inline v0

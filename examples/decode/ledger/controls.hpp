// SPDX-License-Identifier: Apache-2.0
// Two selectors from outside of the library, as controls: one that knows which thought is needed, and one that
// knows nothing. They show what a selector of one's own takes.
#pragma once

#include <zoomr/policies/zoomr.hpp>

#include <vector>  // std::vector

namespace decode::ledger {

using zoomr::index;

/// Which segment each position of each sequence needs, or -1: [sequences][positions].
using needs = std::vector<std::vector<index>>;

/// Takes the one segment that is needed.
struct oracle {
  using role = zoomr::role::selector;
  static constexpr const char* name = "oracle";

  const needs* needed = nullptr;

  void choose(zoomr::best_first&, const zoomr::selection_input& input, zoomr::selection_row& row) const {
    const auto& of = (*needed)[static_cast<std::size_t>(input.sequence)];
    const index id = of[static_cast<std::size_t>(input.position)];
    if (id >= 0 && id < input.tokens.size() && input.tokens[id] > 0) row.take(id);
  }
  static constexpr void each_field(auto&, auto) {}
  friend constexpr bool operator==(const oracle&, const oracle&) = default;
};

/// Takes `segments` segments at random: the same ones for the same seed, sequence and position.
struct random_segments {
  using role = zoomr::role::selector;
  static constexpr const char* name = "random_segments";

  index segments = 2;
  std::uint64_t seed = 1;

  void choose(zoomr::best_first&, const zoomr::selection_input& input, zoomr::selection_row& row) const {
    std::vector<index> eligible;
    for (index id = 0; id < input.tokens.size(); ++id) {
      if (input.tokens[id] > 0) eligible.push_back(id);
    }
    std::uint64_t bits = seed * 1000003 + static_cast<std::uint64_t>(input.sequence) * 65537 +
                         static_cast<std::uint64_t>(input.position);
    for (index taken = 0; taken < segments && !eligible.empty(); ++taken) {
      bits += 0x9e3779b97f4a7c15u;  // splitmix64
      std::uint64_t z = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      const auto at = eligible.begin() + static_cast<std::ptrdiff_t>((z ^ (z >> 31)) % eligible.size());
      row.take(*at);
      eligible.erase(at);
    }
  }
  static constexpr void each_field(auto& self, auto visit) { visit("segments", self.segments); }
  friend constexpr bool operator==(const random_segments&, const random_segments&) = default;
};

/// A preset with another selector.
template <class Policy, class Selector>
constexpr auto with_selector(const Policy& p, Selector selector) {
  return zoomr::compose(p.segment, p.retain, p.summarize, p.ask, p.score, p.agree, selector, p.refresh, p.zone,
                        p.store);
}

}  // namespace decode::ledger

// SPDX-License-Identifier: Apache-2.0
// Components from outside of the library, as controls: a selector that knows which thought is needed, one that knows
// nothing, and a segmenter whose summaries never see their thoughts. They show what a component of one's own takes.
#pragma once

#include <zoomr/policy/score/box_bound.hpp>
#include <zoomr/policy/select/top_p.hpp>
#include <zoomr/policy/summarize/key_box.hpp>
#include <zoomr/presets/zoomr_thoughts.hpp>

#include <vector>  // std::vector

namespace decode::ledger {

using zoomr::index_t;

/// Which segment each position of each sequence needs, or -1: [sequences][positions].
using needs = std::vector<std::vector<index_t>>;

/// Takes the one segment that is needed.
struct oracle {
  using role = zoomr::role::selector;
  static constexpr const char* name = "oracle";

  const needs* needed = nullptr;

  void choose(zoomr::best_first&, const zoomr::selection_input& input, zoomr::selection_row& row) const {
    const auto& of = (*needed)[static_cast<std::size_t>(input.sequence)];
    const index_t id = of[static_cast<std::size_t>(input.position)];
    if (id >= 0 && id < input.tokens.size() && input.tokens[id] > 0) row.take(id);
  }
  static constexpr void each_field(auto&, auto) {}
  friend constexpr bool operator==(const oracle&, const oracle&) = default;
};

/// Takes `segments` segments at random: the same ones for the same seed, sequence and position.
struct random_segments {
  using role = zoomr::role::selector;
  static constexpr const char* name = "random_segments";

  index_t segments = 2;
  std::uint64_t seed = 1;

  void choose(zoomr::best_first&, const zoomr::selection_input& input, zoomr::selection_row& row) const {
    std::vector<index_t> eligible;
    for (index_t id = 0; id < input.tokens.size(); ++id) {
      if (input.tokens[id] > 0) eligible.push_back(id);
    }
    std::uint64_t bits = seed * 1000003 + static_cast<std::uint64_t>(input.sequence) * 65537 +
                         static_cast<std::uint64_t>(input.position);
    for (index_t taken = 0; taken < segments && !eligible.empty(); ++taken) {
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

/// Closes a thought where its summary begins, so that the summary's keys and values are made without it.
struct thoughts_apart {
  using role = zoomr::role::segmenter;
  static constexpr const char* name = "thoughts_apart";
  struct state {
    index_t begin = 0;
    friend constexpr bool operator==(const state&, const state&) = default;
  };

  index_t longest = 4096;

  constexpr void feed(state& open, zoomr::token_class classes, index_t position, zoomr::closings& out) const {
    if (has(classes, zoomr::token_class::summary_begin) && open.begin < position) {
      out.add({open.begin, position, position, open.begin, position, position});
      open.begin = position;
    }
    const bool summary_ends = has(classes, zoomr::token_class::summary_end);
    if (!summary_ends && position + 1 - open.begin < longest) return;
    out.add({open.begin, summary_ends ? open.begin : position + 1, position + 1, open.begin, position + 1, position});
    open.begin = position + 1;
  }
  constexpr void end_of_prompt(state& open, index_t position, zoomr::closings& out) const {
    if (open.begin <= position) out.add({open.begin, position + 1, position + 1, open.begin, position + 1, position});
    open.begin = position + 1;
  }
  constexpr index_t open_begin(const state& open) const { return open.begin; }
  static constexpr void each_field(auto& self, auto visit) { visit("longest", self.longest); }
  friend constexpr bool operator==(const thoughts_apart&, const thoughts_apart&) = default;
};

/// The prompt, all summaries, and the text since the last one; no window, which would show a summary its thought.
inline constexpr auto summaries_apart =
    zoomr::compose(thoughts_apart{}, zoomr::zones{.sinks = 4, .recent = 1, .prompt = true, .open = zoomr::unlimited});

/// Thoughts found by the smallest and largest keys of their cue, instead of the mean.
inline constexpr auto zoomr_box = zoomr::compose(
    zoomr::thoughts{}, zoomr::key_box{}, zoomr::box_bound{}, zoomr::head_mass{}, zoomr::top_k{.segments = 2},
    zoomr::boundaries{.second_pass = true}, zoomr::presets::thought_zones, zoomr::placement{.details_on_host = true});

/// A preset with another selector.
template <class Policy, class Selector>
constexpr auto with_selector(const Policy& p, Selector selector) {
  return zoomr::compose(p.segment, p.evict, p.summarize, p.query, p.score, p.aggregate, selector, p.refresh, p.zone,
                        p.placement);
}

}  // namespace decode::ledger

// SPDX-License-Identifier: Apache-2.0
// L3. What is attended without being chosen. The zones are [0, front) and [back, end); segments are clipped
// to what is between, so nothing is ever counted twice.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Which summaries are attended beside the chosen segments.
enum class summaries_attended : std::uint8_t { all, candidates };

/// Sinks, prompt, open segment, window, and how summaries and first layers are treated. All counts are tokens; what
/// eviction has taken out of a zone is not attended.
struct zones {
  using role = zoomr::role::zones;
  static constexpr const char* name = "zones";

  index_t sinks = 0;    // first tokens
  index_t recent = 1;   // last tokens, the query's own included
  index_t align = 1;    // these begin at a multiple of so many tokens, so that there may be fewer: whole pages
  index_t turns = 0;    // so many the zone grows to after the first prompt, before it moves on; the turns of a chat
  bool prompt = false;  // the whole first prompt, or let it be segments like the rest
  index_t open = 0;     // last tokens of the open segment, at most, `recent` among them; `unlimited`: all of it
  summaries_attended summaries = summaries_attended::all;  // or only those with a vote or some mass
  bool own_summary = true;                                 // the summary of a chosen segment is attended too
  index_t dense_layers = 0;                                // first layers that attend everything
  index_t preamble = 0;  // segments before the first text of a conversation, whole, in so many first tokens at most
  index_t question = 0;  // segments of the last prompt's question, whole, in its last so many tokens at most

  /// Where no span names the question it is sought in so many last tokens: in more there is much that is none.
  static constexpr index_t unnamed_question = 64;

  /// End of the front zone, exclusive, for a query at `position`: never after its own token. `prompt_end` is the first
  /// position after the first prompt.
  ZOOMR_HD constexpr index_t front(index_t position, index_t prompt_end) const {
    const index_t pinned = prompt && prompt_end > sinks ? prompt_end : sinks;
    return pinned < position + 1 ? pinned : position + 1;
  }

  /// Begin of the back zone for a query at `position` whose open segment begins at `open_begin`; never before
  /// the end of the front zone. It is the position of the zone's first token.
  ///
  /// With `align` the window begins at the next multiple, so that it is shorter rather than longer; the open segment
  /// and turns are not aligned.
  ZOOMR_HD constexpr index_t back(index_t position, index_t prompt_end, index_t open_begin) const {
    const index_t end = position + 1;
    index_t begin = end - (recent < end ? recent : end);
    begin += (align - begin % align) % align;
    const index_t of_open = end - (open < end ? open : end);
    const index_t open_first = open_begin > of_open ? open_begin : of_open;
    if (open_first < begin) begin = open_first;
    const index_t of_turns = end - (turns < end ? turns : end), recent_then = prompt_end - recent;
    const index_t turns_first = recent_then > of_turns ? recent_then : of_turns;
    if (prompt_end > 0 && turns_first < begin) begin = turns_first;
    const index_t least = front(position, prompt_end);
    return begin > least ? begin : least;
  }

  constexpr const char* problem() const {
    if (sinks < 0 || open < 0 || turns < 0 || dense_layers < 0 || preamble < 0 || question < 0)
      return "zones: no field can be negative";
    if (recent < 1) return "zones: recent must be at least 1, the token itself";
    if (align < 1 || align > recent)
      return "zones: align must lie in [1, recent], so that the token itself is attended";
    return nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("sinks", self.sinks);
    visit("recent", self.recent);
    visit("align", self.align);
    visit("turns", self.turns);
    visit("prompt", self.prompt);
    visit("open", self.open);
    visit("summaries", self.summaries);
    visit("own_summary", self.own_summary);
    visit("dense_layers", self.dense_layers);
    visit("preamble", self.preamble);
    visit("question", self.question);
  }
  friend constexpr bool operator==(const zones&, const zones&) = default;
};

static_assert(component<zones>);

/// Tokens of a budget that may be taken in any case, unchosen: two thirds, rounded up; at least one.
constexpr index_t unchosen_share(index_t budget) { return budget > 1 ? budget - budget / 3 : 1; }

/// The zones of a preset under a budget of attended tokens: sinks and window as they are, if they leave a third of it
/// to what is chosen; else both are smaller in the same proportion, so that they do.
constexpr zones within_budget(zones zone, index_t budget) {
  const index_t most = unchosen_share(budget);
  const std::int64_t named = std::int64_t{zone.sinks} + zone.recent;
  if (named <= most && zone.recent >= 1) return zone;
  zone.sinks = named > most ? static_cast<index_t>(zone.sinks * std::int64_t{most} / named) : zone.sinks;
  zone.recent = most - zone.sinks;
  if (zone.recent < 1) {
    zone.recent = 1;
    zone.sinks = most - 1;
  }
  return zone;
}

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L3. Model positions: what rotary embedding, sliding windows and a bias by distance count by. A token's is its
// position in the sequence, unless an edit has left a gap or moved a span, or the engine gives positions of its own.
// Everything else, segments and zones with it, counts tokens.
#pragma once

#include <zoomr/policy/slot_map.hpp>

namespace zoomr::inline v0 {

/// Tokens from `first` on, up to the next span, have the model positions position + offset.
struct position_span {
  index_t first = 0;
  index_t offset = 0;
  friend constexpr bool operator==(const position_span&, const position_span&) = default;
};

/// The model positions of a sequence's tokens. They never descend; several tokens may have one.
struct position_map {
  view<const position_span> spans;  // ascending; before the first one, and where there is none, the offset is 0

  /// Positions are model positions.
  constexpr bool plain() const { return spans.size() == 0; }
  /// The model position of the token at `position`; behind the last token that of the next ones.
  /// @cost  O(log spans)
  constexpr index_t at(index_t position) const { return position + offset_at(position); }
  constexpr index_t offset_at(index_t position) const { return plain() ? 0 : found_offset(position); }
  /// The first token whose model position is not before this one.
  /// @cost  O(log spans)
  constexpr index_t first_at(index_t model_position) const {
    const index_t before = count([&](const position_span& span) { return span.first + span.offset < model_position; });
    const index_t begin = before == 0 ? 0 : spans[before - 1].first;
    const index_t position = model_position - (before == 0 ? 0 : spans[before - 1].offset);
    const index_t first = position > begin ? position : begin;
    return before < spans.size() && spans[before].first < first ? spans[before].first : first;
  }

 private:
  // Few sequences have spans: this is compiled once.
  [[gnu::noinline]] constexpr index_t found_offset(index_t position) const {
    const index_t before = count([&](const position_span& span) { return span.first <= position; });
    return before == 0 ? 0 : spans[before - 1].offset;
  }
  // How many spans at the front are `early`.
  template <class Early>
  constexpr index_t count(Early early) const {
    index_t first = 0;
    for (index_t left = spans.size(); left > 0;) {
      const index_t half = left / 2;
      const bool is_early = early(spans[first + half]);
      first += is_early ? half + 1 : 0;
      left = is_early ? left - half - 1 : half;
    }
    return first;
  }
};

/// What a layer's sliding window lets the queries of a sequence see.
struct seen_window {
  index_t tokens = 0;  // logit_rule::window; 0: there is none
  position_map positions = {};

  /// The first position that a query at `position` sees.
  constexpr index_t first(index_t position) const {
    if (tokens == 0 || positions.plain()) return zone_bounds::first_seen(tokens, position);
    return positions.first_at(positions.at(position) + 1 - tokens);
  }
};

}  // namespace zoomr::inline v0

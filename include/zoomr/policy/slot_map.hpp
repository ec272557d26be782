// SPDX-License-Identifier: Apache-2.0
// L3. Where tokens are, and what of a segment is between the zones. Positions become slots where a KV lane has
// kept only some of its tokens.
#pragma once

#include <zoomr/policy/segment.hpp>

namespace zoomr::inline v0 {

/// Where the tokens of one KV lane are: slot = position, unless eviction has compacted it. Then what is left of the
/// tokens before `compacted_end` comes first, and all tokens from there on follow.
struct slot_map {
  view<const index_t> kept;   // [kept]  ascending positions before `compacted_end`; empty: all are kept
  index_t compacted_end = 0;  // first position after what has been compacted

  /// The slot of the first stored token at or after `position`.
  /// @cost  O(log kept) before `compacted_end`
  ZOOMR_HD constexpr index_t slot_of(index_t position) const {
    if (kept.size() == 0) return position;
    if (position >= compacted_end) return kept.size() + position - compacted_end;
    const index_t* first = kept.data();
    for (index_t left = kept.size(); left > 0;) {
      const index_t half = left / 2;
      const bool before = first[half] < position;
      first += before ? half + 1 : 0;
      left = before ? left - half - 1 : half;
    }
    return static_cast<index_t>(first - kept.data());
  }
  /// The position of the token in a slot that is in use.
  /// @cost  O(1)
  ZOOMR_HD constexpr index_t position_of(index_t slot) const {
    if (kept.size() == 0) return slot;
    return slot < kept.size() ? kept[slot] : slot - kept.size() + compacted_end;
  }
};

/// The slots of positions that are looked up in ascending order.
class ascending_slots {
 public:
  explicit ascending_slots(const slot_map& slots) : slots_(slots) {}

  /// As slot_map::slot_of.
  /// @cost  O(kept) for all positions together
  index_t slot_of(index_t position) {
    if (slots_.kept.size() == 0 || position >= slots_.compacted_end) return slots_.slot_of(position);
    const index_t* const kept = slots_.kept.data();
    while (next_ < slots_.kept.size() && kept[next_] < position) ++next_;
    return next_;
  }

 private:
  slot_map slots_;
  index_t next_ = 0;  // the first slot whose token is not before the last position
};

/// The zones of one query, in positions: it attends [begin, front) and [back, end) in any case, and nothing before
/// `begin`. begin <= front <= back <= end, and end is the position after the query's own token.
struct zone_bounds {
  index_t begin = 0;  // the first position that the layer's sliding window lets it see; 0 without one
  index_t front = 0;
  index_t back = 0;
  index_t end = 0;

  /// The zones of a policy, as far as a layer's window lets the query see them.
  /// @param window  logit_rule::window
  ZOOMR_HD constexpr zone_bounds seen_through(index_t window) const { return seen_from(first_seen(window, end - 1)); }
  /// The same of a query that sees the tokens from `first` on.
  ZOOMR_HD constexpr zone_bounds seen_from(index_t first) const {
    return {first, front > first ? front : first, back > first ? back : first, end};
  }
  /// The first position that a query at `position` sees through a window of so many tokens, its own included; 0: all.
  ZOOMR_HD static constexpr index_t first_seen(index_t window, index_t position) {
    return window > 0 && window <= position ? position + 1 - window : 0;
  }

  /// Everything that the query sees.
  ZOOMR_HD constexpr zone_bounds whole() const { return {begin, begin, begin, end}; }  // all of it is the back zone
  /// The tokens that it attends in any case.
  ZOOMR_HD constexpr index_t tokens(const slot_map& slots) const {
    return slots.slot_of(front) - slots.slot_of(begin) + slots.slot_of(end) - slots.slot_of(back);
  }
};

/// The zones of a query at `position`.
/// @param zone        of the policy
/// @param window      of the layer: logit_rule::window
/// @param prompt_end  the first position after the prompt
/// @param open_begin  first position of the open segment, as committed
template <class Zones>
constexpr zone_bounds zones_of_query(const Zones& zone, index_t window, index_t position, index_t prompt_end,
                                     index_t open_begin) {
  const zone_bounds zones{0, zone.front(position, prompt_end), zone.back(position, prompt_end, open_begin),
                          position + 1};
  return zones.seen_through(window);
}

/// The slots of the part of [first, last) that is between the zones: first and last are positions, the result slots.
/// It may be empty, also since eviction has left nothing of it.
/// @param slots  slot_map, or ascending_slots where parts are looked up in ascending order
ZOOMR_CALLS_EITHER
template <class Slots = const slot_map>
ZOOMR_HD constexpr token_range between_zones(index_t first, index_t last, zone_bounds zone, Slots& slots) {
  if (first < zone.front) first = zone.front;
  if (last > zone.back) last = zone.back;
  if (first >= last) return {0, 0};
  const index_t slot = slots.slot_of(first);
  return {slot, slots.slot_of(last)};
}

}  // namespace zoomr::inline v0

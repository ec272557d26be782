// SPDX-License-Identifier: Apache-2.0
// L3. Where tokens lie, and what of a segment lies between the zones. Positions become slots where a KV lane has
// kept only some of its tokens.
#pragma once

#include <zoomr/policy/segment.hpp>

namespace zoomr {
inline namespace v0 {

/// Where the tokens of one KV lane lie: slot = position, unless eviction has compacted it. Then what is left of the
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

/// The slots of positions that are asked for in ascending order.
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

/// The zones of one query, in positions: it attends [0, front) and [back, end) in any case. front <= back <= end, and
/// end is the position behind the query's own token.
struct zone_bounds {
  index_t front = 0;
  index_t back = 0;
  index_t end = 0;

  /// The tokens that it attends in any case.
  ZOOMR_HD constexpr index_t tokens(const slot_map& slots) const {
    return slots.slot_of(front) + slots.slot_of(end) - slots.slot_of(back);
  }
};

/// The slots of the part of [first, last) that lies between the zones: first and last are positions, the result slots.
/// It may be empty, also since eviction has left nothing of it.
/// @param slots  slot_map, or ascending_slots where parts are asked for in ascending order
ZOOMR_CALLS_EITHER
template <class Slots = const slot_map>
ZOOMR_HD constexpr token_range between_zones(index_t first, index_t last, zone_bounds zone, Slots& slots) {
  if (first < zone.front) first = zone.front;
  if (last > zone.back) last = zone.back;
  if (first >= last) return {0, 0};
  const index_t slot = slots.slot_of(first);
  return {slot, slots.slot_of(last)};
}

}  // namespace v0
}  // namespace zoomr

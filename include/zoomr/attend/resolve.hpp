// SPDX-License-Identifier: Apache-2.0
// L4. From levels to runs: attended = [0, front) + segments at their level + [back, end), ascending and
// disjoint by construction. Positions become slots where a lane has retained only some of its tokens.
#pragma once

#include <zoomr/zones.hpp>

#include <algorithm>  // std::lower_bound, std::min, std::max

namespace zoomr {
inline namespace v0 {

/// Where the tokens of one lane lie: slot = position, unless retention has compacted it. Then what is left of the
/// tokens before `compacted_end` comes first, and all tokens from there on follow.
struct slot_map {
  view<const index> kept;   // [retained]  ascending positions before `compacted_end`; empty: all are kept
  index compacted_end = 0;  // first position after what has been compacted

  /// The slot of the first stored token at or after `position`.
  index slot_of(index position) const {
    if (kept.size() == 0) return position;
    if (position >= compacted_end) return kept.size() + position - compacted_end;
    return static_cast<index>(std::lower_bound(kept.begin(), kept.end(), position) - kept.begin());
  }
  index position_of(index slot) const {
    if (kept.size() == 0) return slot;
    return slot < kept.size() ? kept[slot] : slot - kept.size() + compacted_end;
  }
};

/// The zones of one query, in positions: it attends [0, front) and [back, end) in any case.
struct zone_bounds {
  index front = 0;
  index back = 0;
  index end = 0;
};

/// The slots of the part of [first, last) that lies between the zones.
inline run between_zones(index first, index last, zone_bounds zone, const slot_map& slots) {
  first = std::max(first, zone.front);
  last = std::min(last, zone.back);
  if (first >= last) return {0, 0};
  return {slots.slot_of(first), slots.slot_of(last)};
}

/// Ascending runs in the caller's memory; touching ones are joined.
class run_list {
 public:
  run_list() = default;
  explicit run_list(view<run> memory) : memory_(memory) {}

  void add(run r) {
    if (r.size() <= 0) return;
    if (count_ > 0 && memory_[count_ - 1].last == r.first) {
      memory_[count_ - 1].last = r.last;
    } else {
      memory_[count_++] = r;
    }
    tokens_ += r.size();
  }
  view<const run> runs() const { return memory_.slice(0, count_); }
  index tokens() const { return tokens_; }

 private:
  view<run> memory_;
  index count_ = 0;
  index tokens_ = 0;
};

/// Adds the slots that a query attends under `row`.
/// @param segments  [segments]  ascending; `out` needs room for 2 * segments + 2 runs
/// @cost  O(segments)
inline void resolve(view<const segment> segments, const selection_row& row, zone_bounds zone, bool own_summary,
                    const slot_map& slots, run_list& out) {
  out.add({0, slots.slot_of(zone.front)});
  for (index id = 0; id < segments.size(); ++id) {
    const segment& s = segments[id];
    const level at = row.of(id);
    if (at == level::dropped || s.end <= zone.front || s.begin >= zone.back) continue;
    if (at == level::details) {
      run details = between_zones(s.begin, s.split, zone, slots);
      if (id == row.cut_segment) details.last = std::min(details.last, details.first + row.cut_tokens);
      out.add(details);
    }
    if (at == level::summary || own_summary) out.add(between_zones(s.split, s.end, zone, slots));
  }
  out.add({slots.slot_of(zone.back), slots.slot_of(zone.end)});
}

/// Writes the slots of `runs` one by one, padded with -1, for engines with an attention kernel of their own.
/// @param out  [at least as many as the runs hold]
/// @return     how many were written before the padding
inline index expand(view<const run> runs, view<index> out) {
  index count = 0;
  for (const run& r : runs) {
    for (index slot = r.first; slot < r.last; ++slot) out[count++] = slot;
  }
  for (index i = count; i < out.size(); ++i) out[i] = -1;
  return count;
}

}  // namespace v0
}  // namespace zoomr

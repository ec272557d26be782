// SPDX-License-Identifier: Apache-2.0
// L4. From levels to ranges: attended = [begin, front) + segments at their level + [back, end), ascending and
// disjoint by construction.
//
// Segments, zones and levels are in positions, ranges in slots: a KV lane's slot_map turns one into the other here, and
// what attends afterwards reads slots alone. The host resolves for each KV head or query head that reads ranges of its
// own (cache/host/choosing/token_ranges.hpp).
#pragma once

#include <zoomr/policy/slot_map.hpp>
#include <zoomr/policy/zones.hpp>

namespace zoomr::inline v0 {

/// Ascending ranges in the caller's memory; touching ones are joined, empty ones dropped. Ranges must come in ascending
/// order and must not overlap; there must be room for them.
class range_list {
 public:
  range_list() = default;
  explicit range_list(view<token_range> memory) : memory_(memory) {}

  void add(token_range r) {
    if (r.size() <= 0) return;
    if (count_ > 0 && memory_[count_ - 1].last == r.first) {
      memory_[count_ - 1].last = r.last;
    } else {
      memory_[count_++] = r;
    }
    tokens_ += r.size();
  }
  view<const token_range> ranges() const { return memory_.slice(0, count_); }
  index_t tokens() const { return tokens_; }

 private:
  view<token_range> memory_;
  index_t count_ = 0;
  index_t tokens_ = 0;
};

/// The slots attended of one segment; either may be empty.
struct attended_parts {
  token_range details;
  token_range summary;
};

/// What a query attends of segment `id` under `row`, the zones apart: of a segment that reaches into a zone, what is
/// between the zones. A cut counts from the first token that is left there.
///
/// With `own_summary` the summary tokens come with the details; at `level::summary` they come in any case.
/// @cost  O(1), or O(log kept) where a KV lane has been compacted
/// @param slots  slot_map, or ascending_slots where segments come in ascending order
ZOOMR_CALLS_EITHER
template <class Slots = const slot_map>
ZOOMR_HD constexpr attended_parts parts_attended(const segment& s, index_t id, const selection_row& row,
                                                 zone_bounds zone, bool own_summary, Slots& slots) {
  attended_parts parts;
  const level at = row.level_at(id);
  if (at == level::dropped || s.end <= zone.front || s.begin >= zone.back) return parts;
  if (at == level::details) {
    parts.details = between_zones(s.begin, s.split, zone, slots);
    const bool cut = id == row.cut_segment && parts.details.size() > row.cut_tokens;
    if (cut) parts.details.last = parts.details.first + row.cut_tokens;
  }
  if (at == level::summary || own_summary) parts.summary = between_zones(s.split, s.end, zone, slots);
  return parts;
}

namespace detail {
template <class Slots>
void resolve(view<const segment> segments, const selection_row& row, zone_bounds zone, bool own_summary, Slots& slots,
             range_list& out, const view<const index_t>* taken) {
  const index_t front = slots.slot_of(zone.begin);
  out.add({front, slots.slot_of(zone.front)});
  const index_t count = taken != nullptr ? taken->size() : segments.size();
  for (index_t i = 0; i < count; ++i) {
    const index_t id = taken != nullptr ? (*taken)[i] : i;
    const attended_parts parts = parts_attended(segments[id], id, row, zone, own_summary, slots);
    out.add(parts.details);
    out.add(parts.summary);
  }
  const index_t back = slots.slot_of(zone.back);
  out.add({back, slots.slot_of(zone.end)});
}
}  // namespace detail

/// Adds the slots that a query attends under `row`. `zone` is in positions, those of the query; `slots` is that of its
/// KV lane.
/// @param segments  [segments]  ascending; `out` needs room for 2 * segments + 2 ranges
/// @param taken     those whose details `row` takes, ascending, where nothing else of segments is attended
/// @cost  O(segments), or O(taken), and O(kept) where the KV lane has been compacted; allocates nothing
inline void resolve(view<const segment> segments, const selection_row& row, zone_bounds zone, bool own_summary,
                    const slot_map& slots, range_list& out, const view<const index_t>* taken = nullptr) {
  if (slots.kept.size() == 0) return detail::resolve(segments, row, zone, own_summary, slots, out, taken);
  ascending_slots ascending(slots);
  detail::resolve(segments, row, zone, own_summary, ascending, out, taken);
}

}  // namespace zoomr::inline v0

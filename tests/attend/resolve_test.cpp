// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/attend/resolve.hpp>

#include <algorithm>  // std::count_if, std::find

namespace zoomr {

namespace {

/// A sequence with `tokens` tokens, some segments at its beginning, a selection made when fewer of them existed,
/// and in the prompt perhaps only some tokens kept.
struct scene {
  index tokens = 0;
  index prompt_end = 0;
  std::vector<segment> segments;
  std::vector<level> levels;
  selection_row row;
  std::vector<index> kept;  // empty: everything
  zone_bounds zone;
  bool own_summary = true;

  slot_map slots() const { return {kept, prompt_end}; }
  bool stored(index position) const {
    return kept.empty() || position >= prompt_end || std::find(kept.begin(), kept.end(), position) != kept.end();
  }
  index slot_by_counting(index position) const {
    index slot = 0;
    for (index before = 0; before < position; ++before) slot += stored(before) ? 1 : 0;
    return slot;
  }
};

/// The definition, position by position.
bool attended(const scene& of, index position) {
  if (!of.stored(position) || position >= of.zone.end) return false;
  if (position < of.zone.front || position >= of.zone.back) return true;
  for (index id = 0; id < static_cast<index>(of.segments.size()); ++id) {
    const segment& s = of.segments[unit::size(id)];
    if (position < s.begin || position >= s.end) continue;
    const level at = of.row.of(id);
    if (position >= s.split) return at == level::summary || (at == level::details && of.own_summary);
    if (at != level::details) return false;
    if (id != of.row.cut_segment) return true;
    index before = 0;  // of the segment's tokens that can be attended
    for (index p = std::max(s.begin, of.zone.front); p < position; ++p) before += of.stored(p) ? 1 : 0;
    return before < of.row.cut_tokens;
  }
  return false;  // in the open segment, and in no zone
}

scene random_scene(unit::random& random) {
  scene made;
  made.tokens = random.between(1, 120);
  made.prompt_end = random.between(1, made.tokens);
  for (index begin = 0; begin < made.tokens;) {
    const index end = begin + random.between(1, 17);
    if (end > made.tokens) break;
    const index split = random.chance(0.5) ? end : random.between(begin, end);
    made.segments.push_back({begin, split, end, begin, end, end - 1});
    begin = end;
  }
  const auto chosen_among = random.below(static_cast<index>(made.segments.size()) + 1);
  for (index id = 0; id < chosen_among; ++id) made.levels.push_back(static_cast<level>(random.below(3)));
  made.row.levels = made.levels;
  if (chosen_among > 0 && random.chance(0.5)) {
    made.row.take_part(random.below(chosen_among), random.between(1, 9));
  }
  if (random.chance(0.6)) {
    for (index p = 0; p < made.prompt_end; ++p) {
      if (random.chance(0.4)) made.kept.push_back(p);
    }
    if (made.kept.empty()) made.kept.push_back(made.prompt_end - 1);
  }
  made.zone.end = made.tokens;
  made.zone.front = random.chance(0.3) ? 0 : random.below(std::min(made.tokens, 20) + 1);
  made.zone.back = random.between(std::max(made.zone.front, made.tokens - 20), made.tokens);
  made.own_summary = random.chance(0.5);
  return made;
}

std::vector<index> slots_by_counting(const scene& of) {
  std::vector<index> slots;
  for (index position = 0; position < of.tokens; ++position) {
    if (attended(of, position)) slots.push_back(of.slot_by_counting(position));
  }
  return slots;
}

}  // namespace

TEST_CASE("resolve gives the slots that each position's description gives") {
  unit::random random(60);
  index many = 0;
  for (int round = 0; round < 3000; ++round) {
    const scene of = random_scene(random);
    std::vector<run> memory(2 * of.segments.size() + 2);
    run_list list{view<run>(memory)};
    resolve(of.segments, of.row, of.zone, of.own_summary, of.slots(), list);
    CAPTURE(round);

    const std::vector<index> expected = slots_by_counting(of);
    REQUIRE(list.tokens() == static_cast<index>(expected.size()));
    std::vector<index> slots(expected.size() + 3, -7);
    REQUIRE(expand(list.runs(), view<index>(slots)) == static_cast<index>(expected.size()));
    REQUIRE(std::vector<index>(slots.begin(), slots.end() - 3) == expected);
    REQUIRE(std::vector<index>(slots.end() - 3, slots.end()) == std::vector<index>{-1, -1, -1});

    for (index r = 0; r < list.runs().size(); ++r) {  // ascending, not empty, not even touching
      REQUIRE(list.runs()[r].size() > 0);
      if (r > 0) REQUIRE(list.runs()[r].first > list.runs()[r - 1].last);
    }
    many += list.runs().size() > 4 ? 1 : 0;
  }
  CHECK(many > 300);
}

TEST_CASE("a slot map is the count of stored tokens, in both directions") {
  unit::random random(61);
  for (int round = 0; round < 200; ++round) {
    const scene of = random_scene(random);
    const slot_map slots = of.slots();
    for (index position = 0; position <= of.tokens + 5; ++position) {
      REQUIRE(slots.slot_of(position) == of.slot_by_counting(position));
      if (of.stored(position)) REQUIRE(slots.position_of(slots.slot_of(position)) == position);
    }
  }
}

TEST_CASE("what lies between the zones is clipped to them") {
  const zone_bounds zone{4, 10, 12};
  CHECK(between_zones(5, 8, zone, {}) == run{5, 8});
  CHECK(between_zones(0, 6, zone, {}) == run{4, 6});
  CHECK(between_zones(8, 12, zone, {}) == run{8, 10});
  CHECK(between_zones(0, 12, zone, {}) == run{4, 10});
  CHECK(between_zones(0, 4, zone, {}).size() == 0);
  CHECK(between_zones(10, 12, zone, {}).size() == 0);
  CHECK(between_zones(6, 6, zone, {}).size() == 0);
  const std::vector<index> kept{1, 5, 6, 9};
  CHECK(between_zones(4, 7, zone, {kept, 10}) == run{1, 3});
  CHECK(between_zones(7, 9, zone, {kept, 10}).size() == 0);  // nothing of it was kept
}

TEST_CASE("a run list joins runs that touch and drops empty ones") {
  std::vector<run> memory(3);
  run_list list{view<run>(memory)};
  list.add({0, 0});
  list.add({2, 5});
  list.add({5, 6});
  list.add({7, 7});
  list.add({8, 9});
  REQUIRE(list.runs().size() == 2);
  CHECK(list.runs()[0] == run{2, 6});
  CHECK(list.runs()[1] == run{8, 9});
  CHECK(list.tokens() == 5);
}

TEST_CASE("expanding nothing is padding only, and a full output has none") {
  std::vector<index> slots(2, 7);
  CHECK(expand({}, view<index>(slots)) == 0);
  CHECK(slots == std::vector<index>{-1, -1});
  const std::vector<run> runs{{3, 5}};
  CHECK(expand(runs, view<index>(slots)) == 2);
  CHECK(slots == std::vector<index>{3, 4});
}

}  // namespace zoomr

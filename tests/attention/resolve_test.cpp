// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/attention/resolve.hpp>

#include <algorithm>  // std::count_if, std::find

namespace zoomr::resolve_test {

namespace {

/// A sequence with `tokens` tokens, some segments at its beginning, a selection made when fewer of them existed,
/// and in the prompt perhaps only some tokens kept.
struct scene {
  index_t tokens = 0;
  index_t prompt_end = 0;
  std::vector<segment> segments;
  std::vector<level> levels;
  selection_row row;
  std::vector<index_t> kept;  // empty: everything
  zone_bounds zone;
  bool own_summary = true;

  slot_map slots() const { return {kept, prompt_end}; }
  bool stored(index_t position) const {
    return kept.empty() || position >= prompt_end || std::find(kept.begin(), kept.end(), position) != kept.end();
  }
  index_t slot_by_counting(index_t position) const {
    index_t slot = 0;
    for (index_t before = 0; before < position; ++before) slot += stored(before) ? 1 : 0;
    return slot;
  }
};

/// The definition, position by position.
bool attended(const scene& of, index_t position) {
  if (!of.stored(position) || position >= of.zone.end || position < of.zone.begin) return false;
  if (position < of.zone.front || position >= of.zone.back) return true;
  for (index_t id = 0; id < static_cast<index_t>(of.segments.size()); ++id) {
    const segment& s = of.segments[unit::size(id)];
    if (position < s.begin || position >= s.end) continue;
    const level at = of.row.level_at(id);
    if (position >= s.split) return at == level::summary || (at == level::details && of.own_summary);
    if (at != level::details) return false;
    if (id != of.row.cut_segment) return true;
    index_t before = 0;  // of the segment's tokens that can be attended
    for (index_t p = std::max(s.begin, of.zone.front); p < position; ++p) before += of.stored(p) ? 1 : 0;
    return before < of.row.cut_tokens;
  }
  return false;  // in the open segment, and in no zone
}

scene random_scene(unit::random& random) {
  scene made;
  made.tokens = random.between(1, 120);
  made.prompt_end = random.between(1, made.tokens);
  for (index_t begin = 0; begin < made.tokens;) {
    const index_t end = begin + random.between(1, 17);
    if (end > made.tokens) break;
    const index_t split = random.chance(0.5) ? end : random.between(begin, end);
    made.segments.push_back({begin, split, end, begin, end, end - 1});
    begin = end;
  }
  const auto chosen_among = random.below(static_cast<index_t>(made.segments.size()) + 1);
  for (index_t id = 0; id < chosen_among; ++id) made.levels.push_back(static_cast<level>(random.below(3)));
  made.row.levels = made.levels;
  if (chosen_among > 0 && random.chance(0.5)) {
    made.row.take_part(random.below(chosen_among), random.between(1, 9));
  }
  if (random.chance(0.6)) {
    for (index_t p = 0; p < made.prompt_end; ++p) {
      if (random.chance(0.4)) made.kept.push_back(p);
    }
    if (made.kept.empty()) made.kept.push_back(made.prompt_end - 1);
  }
  made.zone.end = made.tokens;
  made.zone.front = random.chance(0.3) ? 0 : random.below(std::min(made.tokens, 20) + 1);
  made.zone.back = random.between(std::max(made.zone.front, made.tokens - 20), made.tokens);
  made.own_summary = random.chance(0.5);
  if (random.chance(0.4)) made.zone = made.zone.seen_through(random.between(1, made.tokens + 3));
  return made;
}

std::vector<index_t> slots_by_counting(const scene& of) {
  std::vector<index_t> slots;
  for (index_t position = 0; position < of.tokens; ++position) {
    if (attended(of, position)) slots.push_back(of.slot_by_counting(position));
  }
  return slots;
}

std::vector<index_t> one_by_one(view<const token_range> ranges) {
  std::vector<index_t> slots;
  for (const token_range& r : ranges) {
    for (index_t slot = r.first; slot < r.last; ++slot) slots.push_back(slot);
  }
  return slots;
}

}  // namespace

TEST_CASE("resolve gives the slots that each position's description gives") {
  unit::random random(60);
  index_t many = 0;
  for (int round = 0; round < 3000; ++round) {
    const scene of = random_scene(random);
    std::vector<token_range> memory(2 * of.segments.size() + 2);
    range_list list{view<token_range>(memory)};
    resolve(of.segments, of.row, of.zone, of.own_summary, of.slots(), list);
    CAPTURE(round);

    const std::vector<index_t> expected = slots_by_counting(of);
    REQUIRE(list.tokens() == static_cast<index_t>(expected.size()));
    REQUIRE(one_by_one(list.ranges()) == expected);

    for (index_t r = 0; r < list.ranges().size(); ++r) {  // ascending, not empty, not even touching
      REQUIRE(list.ranges()[r].size() > 0);
      if (r > 0) REQUIRE(list.ranges()[r].first > list.ranges()[r - 1].last);
    }
    many += list.ranges().size() > 4 ? 1 : 0;
  }
  CHECK(many > 300);
}

TEST_CASE("a slot map is the count of stored tokens, in both directions") {
  unit::random random(61);
  for (int round = 0; round < 200; ++round) {
    const scene of = random_scene(random);
    const slot_map slots = of.slots();
    ascending_slots each(slots), some(slots);
    for (index_t position = 0; position <= of.tokens + 5; ++position) {
      REQUIRE(slots.slot_of(position) == of.slot_by_counting(position));
      REQUIRE(each.slot_of(position) == slots.slot_of(position));
      if (random.below(4) == 0) REQUIRE(some.slot_of(position) == slots.slot_of(position));
      if (of.stored(position)) REQUIRE(slots.position_of(slots.slot_of(position)) == position);
    }
  }
}

TEST_CASE("what lies between the zones is clipped to them") {
  const zone_bounds zone{0, 4, 10, 12};
  CHECK(between_zones(5, 8, zone, {}) == token_range{5, 8});
  CHECK(between_zones(0, 6, zone, {}) == token_range{4, 6});
  CHECK(between_zones(8, 12, zone, {}) == token_range{8, 10});
  CHECK(between_zones(0, 12, zone, {}) == token_range{4, 10});
  CHECK(between_zones(0, 4, zone, {}).size() == 0);
  CHECK(between_zones(10, 12, zone, {}).size() == 0);
  CHECK(between_zones(6, 6, zone, {}).size() == 0);
  const std::vector<index_t> kept{1, 5, 6, 9};
  CHECK(between_zones(4, 7, zone, {kept, 10}) == token_range{1, 3});
  CHECK(between_zones(7, 9, zone, {kept, 10}).size() == 0);  // nothing of it was kept
}

TEST_CASE("a run list joins runs that touch and drops empty ones") {
  std::vector<token_range> memory(3);
  range_list list{view<token_range>(memory)};
  list.add({0, 0});
  list.add({2, 5});
  list.add({5, 6});
  list.add({7, 7});
  list.add({8, 9});
  REQUIRE(list.ranges().size() == 2);
  CHECK(list.ranges()[0] == token_range{2, 6});
  CHECK(list.ranges()[1] == token_range{8, 9});
  CHECK(list.tokens() == 5);
}

}  // namespace zoomr::resolve_test

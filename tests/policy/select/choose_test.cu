// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <attention/scenes.hpp>
#include <support/device_memory.hpp>
#include <support/mutations.hpp>
#include <zoomr/policy/aggregate/head_mass.hpp>
#include <zoomr/policy/aggregate/pooled_score.hpp>
#include <zoomr/policy/select/choose.cuh>
#include <zoomr/policy/select/fill_budget.hpp>
#include <zoomr/policy/select/select_none.hpp>
#include <zoomr/policy/select/top_k.hpp>
#include <zoomr/policy/select/top_p.hpp>

#include <algorithm>  // std::max

namespace zoomr {

namespace {

using zoomr_test::device_array;
using zoomr_test::random_scene;
using zoomr_test::selection_scene;

/// A row that is to be made.
struct question {
  selection_scene of;
  std::vector<index_t> tokens;  // what is left of each segment, as the host counts it
  index_t room_used = 0;
  std::vector<votes_t> votes;
  votes_t least = 0;
  votes_t least_attended = not_eligible;
};

/// What a choice makes; the levels, and the cut.
struct chosen {
  std::vector<level> levels;
  index_t cut_segment = -1;
  index_t cut_tokens = 0;

  bool same(const chosen& other) const {
    return levels == other.levels && cut_segment == other.cut_segment && cut_tokens == other.cut_tokens;
  }
};

// ---- the host's way, as in cache/host/choosing/chooser.hpp ----

void begin(question& asked) {
  const zone_bounds zone = asked.of.zone;
  const slot_map slots = asked.of.slots();
  asked.room_used =
      slots.slot_of(zone.front) - slots.slot_of(zone.begin) + slots.slot_of(zone.end) - slots.slot_of(zone.back);
  for (const segment& s : asked.of.segments) {
    const index_t left = between_zones(s.begin, s.split, zone, slots).size();
    asked.room_used += between_zones(s.split, s.end, zone, slots).size();
    asked.tokens.push_back(left);
    asked.votes.push_back(left > 0 ? 0 : not_eligible);
  }
}

template <class Selector>
chosen on_host(const Selector& select, const question& asked) {
  chosen made;
  for (const votes_t of : asked.votes) {
    const bool unwanted = of != not_eligible && of < asked.least_attended;
    made.levels.push_back(unwanted ? level::dropped : level::summary);
  }
  std::vector<index_t> order(asked.votes.size());
  best_first best(static_cast<index_t>(asked.votes.size()), by_votes{asked.votes}, order);
  selection_row row{made.levels};
  select.choose(best, selection_input{asked.tokens, asked.room_used, asked.least, 99}, row);
  made.cut_segment = row.cut_segment;
  made.cut_tokens = row.cut_tokens;
  return made;
}

// ---- the device's ----

struct listed_rows {
  view<const row_to_choose> rows;
  __device__ row_to_choose at(index_t i) const { return rows[i]; }
};

/// A kernel of any block size.
template <index_t Threads, class Selector>
__global__ void choose_with(Selector select, listed_rows rows) {
  __shared__ block_scratch scratch;
  __shared__ best_scratch<Threads> walk_scratch;
  block_threads block(scratch);
  const row_to_choose row = rows.at(static_cast<index_t>(blockIdx.x));
  choose_row(block, walk_scratch, select, row, attended_anyway(block, select, row));
}

/// Begins each row: room used, tokens and votes.
__global__ void begin_with(view<const row_to_choose> rows, view<index_t> room_used, view<index_t> tokens,
                           view<votes_t> votes, view<const index_t> starts) {
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  const auto i = static_cast<index_t>(blockIdx.x);
  const index_t count = rows[i].segments.size();
  const index_t used =
      begin_choice(block, rows[i].segments, rows[i].zone, rows[i].slots, tokens.slice(starts[i], starts[i] + count),
                   votes.slice(starts[i], starts[i] + count));
  if (block.thread() == block.size() - 1) room_used[i] = used;  // every thread knows it
}

constexpr auto untouched = static_cast<level>(7);

/// Questions on the device, one behind the other, and room for their answers.
class table {
 public:
  explicit table(const std::vector<question>& asked)
      : segments_(joined<segment>(asked, [](const question& q) { return q.of.segments; })),
        kept_(joined<index_t>(asked, [](const question& q) { return q.of.kept; })),
        votes_(joined<votes_t>(asked, [](const question& q) { return q.votes; })),
        tokens_(count_of(asked), -7),
        levels_(count_of(asked), untouched),
        made_(static_cast<std::int64_t>(asked.size()), selection_row{{}, -7, -7}),
        rows_(listed(asked)) {}

  listed_rows rows() { return {rows_.view()}; }

  std::vector<chosen> answers() {
    const std::vector<level> levels = levels_.values();
    std::vector<chosen> all;
    std::size_t i = 0;
    for (const selection_row& row : made_.values()) {
      const auto first = levels.begin() + starts_[i];
      const auto count = starts_[i + 1] - starts_[i];
      REQUIRE((row.levels.data() == levels_.data() + starts_[i] && row.levels.size() == count));
      all.push_back({{first, first + count}, row.cut_segment, row.cut_tokens});
      ++i;
    }
    return all;
  }

  /// Begins all rows, and compares them with the host's.
  void check_begin(const std::vector<question>& asked) {
    device_array<index_t> used(static_cast<std::int64_t>(asked.size()), -7);
    device_array<index_t> starts(starts_);
    const launch_shape shape{dim3(static_cast<unsigned>(asked.size())), dim3(64)};
    launch(shape, stream_ref{}, &begin_with, rows().rows, used.view(), tokens_.view(), votes_.view(), starts.view());
    const auto used_made = used.values();
    const auto tokens_made = tokens_.values();
    const auto votes_made = votes_.values();
    for (std::size_t i = 0; i < asked.size(); ++i) {
      REQUIRE(used_made[i] == asked[i].room_used);
      for (std::size_t id = 0; id < asked[i].tokens.size(); ++id) {
        const index_t left = asked[i].tokens[id];
        REQUIRE(tokens_made[unit::size(starts_[i]) + id] == left);
        REQUIRE(votes_made[unit::size(starts_[i]) + id] == (left > 0 ? 0 : not_eligible));
      }
    }
  }

 private:
  template <class T, class Part>
  static std::vector<T> joined(const std::vector<question>& asked, Part part) {
    std::vector<T> all;
    for (const question& q : asked) {
      const std::vector<T> one = part(q);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  static std::int64_t count_of(const std::vector<question>& asked) {
    std::int64_t count = 0;
    for (const question& q : asked) count += static_cast<std::int64_t>(q.of.segments.size());
    return count;
  }

  std::vector<row_to_choose> listed(const std::vector<question>& asked) {
    std::vector<row_to_choose> rows;
    std::ptrdiff_t at = 0, kept_at = 0;
    for (const question& q : asked) {
      const auto count = static_cast<index_t>(q.of.segments.size());
      const auto kept_count = static_cast<index_t>(q.of.kept.size());
      rows.push_back({.segments = {segments_.data() + at, {count}},
                      .zone = q.of.zone,
                      .slots = {{kept_.data() + kept_at, {kept_count}}, q.of.compacted_end},
                      .votes = {votes_.data() + at, {count}},
                      .least = q.least,
                      .least_attended = q.least_attended,
                      .tokens = {tokens_.data() + at, {count}},
                      .levels = {levels_.data() + at, {count}},
                      .selection = made_.data() + rows.size()});
      starts_.push_back(static_cast<index_t>(at));
      at += count, kept_at += kept_count;
    }
    starts_.push_back(static_cast<index_t>(at));
    return rows;
  }

  std::vector<index_t> starts_;
  device_array<segment> segments_;
  device_array<index_t> kept_;
  device_array<votes_t> votes_;
  device_array<index_t> tokens_;
  device_array<level> levels_;
  device_array<selection_row> made_;
  device_array<row_to_choose> rows_;
};

/// @param Threads  of a block; 0: those of a step's
template <index_t Threads, class Selector>
std::vector<chosen> on_device(const Selector& select, const std::vector<question>& asked) {
  table made(asked);
  const auto count = static_cast<index_t>(asked.size());
  constexpr index_t threads = Threads == 0 ? choose_threads : Threads;
  const launch_shape shape{dim3(static_cast<unsigned>(count)), dim3(threads)};
  launch(shape, stream_ref{}, &choose_with<threads, Selector>, select, made.rows());
  return made.answers();
}

struct counted {
  index_t cut = 0;
  index_t taken = 0;
  index_t dropped = 0;
};

template <index_t Threads, class Selector>
counted check(const Selector& select, const std::vector<question>& asked) {
  const std::vector<chosen> made = on_device<Threads>(select, asked);
  counted of;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    CAPTURE(i);
    const chosen expected = on_host(select, asked[i]);
    REQUIRE(made[i].same(expected));
    of.cut += expected.cut_segment >= 0 ? 1 : 0;
    for (const level at : expected.levels) {
      of.taken += at == level::details ? 1 : 0;
      of.dropped += at == level::dropped ? 1 : 0;
    }
  }
  return of;
}

// ---- questions ----

/// Votes of many looks: votes, mass, scores with NaN, all the same, none eligible, and of any sign.
votes_t random_votes(unit::random& random, index_t look) {
  const float odd[] = {not_a_number, infinity, -infinity, 0.0f, -0.0f, 2.5f};
  switch (look) {
    case 0:
      return random.below(4);
    case 1:
      return random.chance(0.3) ? 0 : static_cast<votes_t>(random.bits() >> 20);
    case 2:
      return order_key(random.any_float());
    case 3:
      return order_key(odd[random.below(6)]);
    case 4:
      return 1;
    case 5:
      return not_eligible;
    case 6:
      return order_key(random.uniform(-1.0f, 1.0f));
    default:
      return random.below(7) - 3;
  }
}

question random_question(unit::random& random, index_t segments) {
  question asked{random_scene(random, segments), {}, 0, {}};
  begin(asked);
  const index_t look = random.below(8);
  const bool empty_too = random.chance(0.1);
  for (votes_t& of : asked.votes) {
    if (of != not_eligible || empty_too) of = random_votes(random, look);
  }
  const votes_t leasts[] = {0, 1, pooled_score::least, not_eligible, 2};
  asked.least = leasts[random.below(5)];
  if (random.chance(0.4)) asked.least_attended = random.chance(0.5) ? 1 : asked.least;
  return asked;
}

/// Almost all scores differ.
question question_of_scores(unit::random& random, index_t segments) {
  question asked{random_scene(random, segments), {}, 0, {}};
  begin(asked);
  for (votes_t& of : asked.votes) of = of == not_eligible ? of : random_votes(random, 6);
  asked.least = pooled_score::least;
  return asked;
}

std::vector<question> random_questions(unit::random& random, index_t count, index_t most_segments) {
  std::vector<question> asked;
  for (index_t i = 0; i < count; ++i) asked.push_back(random_question(random, random.below(most_segments + 1)));
  return asked;
}

/// A budget that ends where the first few segments of a row end, or a token before or behind.
index_t close_budget(unit::random& random, const question& asked, index_t room_used) {
  std::vector<index_t> order(asked.votes.size());
  best_first best(static_cast<index_t>(asked.votes.size()), by_votes{asked.votes}, order);
  index_t tokens = room_used;
  for (index_t left = random.below(12); left > 0; --left) {
    const index_t id = best.next();
    if (id >= 0) tokens += asked.tokens[unit::size(id)];
  }
  return std::max(0, tokens + random.between(-1, 1));
}

template <index_t Threads>
counted check_selectors(unit::random& random, index_t count, index_t most_segments) {
  counted sum;
  const auto add = [&](counted more) { sum.cut += more.cut, sum.taken += more.taken, sum.dropped += more.dropped; };
  for (index_t i = 0; i < count; ++i) {
    const std::vector<question> asked = random_questions(random, 4, most_segments);
    const question& first = asked[0];
    const index_t few = random.between(0, 9);
    const bool cut = random.chance(0.6);
    const index_t budget = random.chance(0.3) ? random.below(400) : close_budget(random, first, first.room_used);
    add(check<Threads>(top_k{.segments = few}, asked));
    add(check<Threads>(top_k{.segments = few * 5, .tokens = close_budget(random, first, 0)}, asked));
    add(check<Threads>(fill_budget{.tokens = random.chance(0.05) ? unlimited : budget, .cut = cut}, asked));
    add(check<Threads>(top_p{.share = random.uniform(0.001f, 1.0f), .segments = few * few}, asked));
    const index_t tokens = random.chance(0.3) ? unlimited : 3 * close_budget(random, first, 0);
    add(check<Threads>(top_p{.share = random.uniform(0.001f, 1.0f),
                             .segments = random.below(9),
                             .tokens = tokens,
                             .neighbours = random.between(0, 4)},
                       asked));
  }
  return sum;
}

}  // namespace

TEST_CASE("a block makes the choices that the host makes, with each selector") {
  counted sum;
  unit::random random(50);
  zoomr_test::in_all_orders([&](const std::string& order) {
    CAPTURE(order);
    for (const counted one : {check_selectors<32>(random, 50, 100), check_selectors<64>(random, 12, 200),
                              check_selectors<0>(random, 2, 700)}) {
      sum.cut += one.cut, sum.taken += one.taken, sum.dropped += one.dropped;
    }
  });
  CHECK(sum.cut > 200);
  CHECK(sum.taken > 5000);
  CHECK(sum.dropped > 5000);
}

TEST_CASE("budgets of nothing, of one token, of exactly all, of one less, and of everything") {
  unit::random random(51);
  for (const index_t segments : {0, 1, 2, 31, 32, 33, 64, 97}) {
    const question asked = random_question(random, segments);
    index_t all = 0;
    for (std::size_t id = 0; id < asked.tokens.size(); ++id) {
      all += asked.votes[id] != not_eligible && asked.votes[id] >= asked.least ? asked.tokens[id] : 0;
    }
    for (const index_t room : {-1, 0, 1, all - 1, all, all + 1}) {
      for (const bool cut : {false, true}) {
        check<32>(fill_budget{.tokens = asked.room_used + room, .cut = cut}, {asked});
      }
      check<32>(top_k{.segments = segments, .tokens = room}, {asked});
      check<32>(top_p{.share = 1.0f, .segments = segments, .tokens = room, .neighbours = 1}, {asked});
      check<32>(top_p{.share = 0.1f, .segments = 1, .tokens = room, .neighbours = segments}, {asked});
    }
    check<32>(fill_budget{.tokens = unlimited}, {asked});
    for (const index_t few : {0, 1, segments - 1, segments, segments + 1, unlimited}) {
      check<32>(top_k{.segments = few}, {asked});
      check<32>(top_p{.share = 1.0f, .segments = few}, {asked});
      check<32>(top_p{.share = 1.0f, .segments = few, .neighbours = unlimited}, {asked});
    }
    check<32>(select_none{}, {asked});
  }
}

TEST_CASE("4,096 segments, and 65,536") {
  unit::random random(52);
  std::vector<question> asked;
  for (int i = 0; i < 4; ++i) asked.push_back(random_question(random, 4096));
  check<0>(fill_budget{.tokens = 2048}, asked);
  check<0>(top_p{.share = 0.3f, .segments = unlimited}, asked);
  check<0>(top_p{.share = 0.01f, .segments = 40, .tokens = 2000, .neighbours = 2}, asked);
  const question large = question_of_scores(random, 65536);
  check<0>(fill_budget{.tokens = 100000}, {large});
  check<0>(top_k{.segments = 64}, {large});
}

TEST_CASE("a block counts what is left between the zones, and the room that is used, as the host does") {
  unit::random random(53);
  const std::vector<question> asked = random_questions(random, 200, 150);
  table(asked).check_begin(asked);
}

TEST_CASE("which summaries are attended is the host's rule") {
  CHECK(least_attended<head_mass>(summaries_attended::all) == not_eligible);
  CHECK(least_attended<head_mass>(summaries_attended::candidates) == 1);
  CHECK(least_attended<pooled_score>(summaries_attended::candidates) == pooled_score::least);
}

TEST_CASE("no barrier of a choice can be left out") {
  unit::random random(54);
  const question asked = question_of_scores(random, 300);
  const auto check_barriers = [](const auto& select, const question& row) {
    const chosen expected = on_host(select, row);
    const auto right = [&] { return on_device<64>(select, {row})[0].same(expected); };
    CHECK(zoomr_test::barriers_not_missed(right) == std::vector<std::string>{});
  };
  check_barriers(fill_budget{.tokens = asked.room_used + 300}, asked);
  question of_mass = asked;
  for (votes_t& of : of_mass.votes) of = of == not_eligible ? of : random_votes(random, 1);
  of_mass.least = 0;
  check_barriers(top_p{.share = 0.1f, .segments = 12, .tokens = 200, .neighbours = 2}, of_mass);
}

}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <attention/scenes.hpp>
#include <support/device_memory.hpp>
#include <support/mutations.hpp>
#include <zoomr/attention/resolve.cuh>

namespace zoomr {

namespace {

using zoomr_test::device_array;
using zoomr_test::random_scene;
using zoomr_test::selection_scene;

/// A scene, and a selection that was made when it had perhaps fewer segments.
struct case_of_resolve {
  selection_scene of;
  std::vector<level> levels;
  index_t cut_segment = -1;
  index_t cut_tokens = 0;
  bool own_summary = true;
};

/// Levels of many looks: mixed, runs of the same, all details, all summaries, all dropped.
case_of_resolve random_case(unit::random& random, index_t segments) {
  case_of_resolve made{random_scene(random, segments), {}};
  const index_t chosen_among = random.chance(0.3) ? random.below(segments + 1) : segments;
  const index_t look = random.below(6);
  level last = level::summary;
  for (index_t id = 0; id < chosen_among; ++id) {
    if (look == 0 || random.chance(0.1)) last = static_cast<level>(random.below(3));
    made.levels.push_back(look < 3 ? last : static_cast<level>(look - 3));
  }
  if (chosen_among > 0 && random.chance(0.5)) {
    made.cut_segment = random.below(chosen_among);
    made.cut_tokens = random.between(1, 9);
    if (random.chance(0.8)) made.levels[unit::size(made.cut_segment)] = level::details;
  }
  made.own_summary = random.chance(0.5);
  return made;
}

/// What a resolve writes; everything behind it keeps the marks that were there before.
struct answer {
  std::vector<token_range> ranges;
  std::vector<index_t> before;
  attended_size size;
};

constexpr token_range untouched{-7, -7};

answer on_host(case_of_resolve& of) {
  std::vector<token_range> memory(2 * of.of.segments.size() + 2, untouched);
  range_list list{view<token_range>(memory)};
  const selection_row row{of.levels, of.cut_segment, of.cut_tokens};
  resolve(of.of.segments, row, of.of.zone, of.own_summary, of.of.slots(), list);
  answer made{memory, std::vector<index_t>(memory.size(), -7), {list.ranges().size(), list.tokens()}};
  index_t tokens = 0;
  for (index_t r = 0; r < list.ranges().size(); ++r) {
    made.before[unit::size(r)] = tokens;
    tokens += list.ranges()[r].size();
  }
  return made;
}

/// Rows of a table.
struct listed_rows {
  view<const row_to_resolve> rows;
  __device__ row_to_resolve at(index_t i) const { return rows[i]; }
};

/// A kernel of any block size.
__global__ void resolve_with(listed_rows rows) {
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  const row_to_resolve row = rows.at(static_cast<index_t>(blockIdx.x));
  const attended_size size =
      resolve(block, row.segments, row.row, row.zone, row.own_summary, row.slots, row.ranges, row.before);
  if (block.thread() == block.size() - 1) *row.size = size;  // every thread knows it
}

/// The inputs and outputs of some rows on the device, one behind the other.
class table {
 public:
  explicit table(std::vector<case_of_resolve>& cases) {
    for (case_of_resolve& one : cases) {
      segments_.insert(segments_.end(), one.of.segments.begin(), one.of.segments.end());
      kept_.insert(kept_.end(), one.of.kept.begin(), one.of.kept.end());
      levels_.insert(levels_.end(), one.levels.begin(), one.levels.end());
      starts_.push_back(static_cast<std::ptrdiff_t>(ranges_));
      ranges_ += 2 * one.of.segments.size() + 2;
    }
  }

  /// @param threads  of a block; 0: those of a kernel that resolves a row alone
  std::vector<answer> resolve(const std::vector<case_of_resolve>& cases, index_t threads) {
    device_array<segment> segments(segments_);
    device_array<index_t> kept(kept_);
    device_array<level> levels(levels_);
    device_array<token_range> ranges(static_cast<std::int64_t>(ranges_), untouched);
    device_array<index_t> before(static_cast<std::int64_t>(ranges_), -7);
    device_array<attended_size> sizes(static_cast<std::int64_t>(cases.size()), {-7, -7});
    std::vector<row_to_resolve> rows;
    std::ptrdiff_t segment_at = 0, kept_at = 0, level_at = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const case_of_resolve& one = cases[i];
      const auto count = static_cast<index_t>(one.of.segments.size());
      const auto kept_count = static_cast<index_t>(one.of.kept.size());
      const auto level_count = static_cast<index_t>(one.levels.size());
      rows.push_back({{segments.data() + segment_at, {count}},
                      {{levels.data() + level_at, {level_count}}, one.cut_segment, one.cut_tokens},
                      one.of.zone,
                      one.own_summary,
                      {{kept.data() + kept_at, {kept_count}}, one.of.compacted_end},
                      {ranges.data() + starts_[i], {2 * count + 2}},
                      {before.data() + starts_[i], {2 * count + 2}},
                      sizes.data() + i});
      segment_at += count, kept_at += kept_count, level_at += level_count;
    }
    device_array<row_to_resolve> on_device(rows);
    run_on(on_device, threads);
    return answers(ranges.values(), before.values(), sizes.values());
  }

 private:
  static void run_on(device_array<row_to_resolve>& rows, index_t threads) {
    const listed_rows listed{rows.view()};
    const index_t count = listed.rows.size();
    if (threads == 0) threads = resolve_threads;
    launch({dim3(static_cast<unsigned>(count)), dim3(static_cast<unsigned>(threads))}, stream_ref{}, &resolve_with,
           listed);
  }

  std::vector<answer> answers(const std::vector<token_range>& ranges, const std::vector<index_t>& before,
                              const std::vector<attended_size>& sizes) const {
    std::vector<answer> made;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::ptrdiff_t first = starts_[i];
      const auto last = i + 1 < sizes.size() ? starts_[i + 1] : static_cast<std::ptrdiff_t>(ranges_);
      made.push_back(
          {{ranges.begin() + first, ranges.begin() + last}, {before.begin() + first, before.begin() + last}, sizes[i]});
    }
    return made;
  }

  std::vector<segment> segments_;
  std::vector<index_t> kept_;
  std::vector<level> levels_;
  std::vector<std::ptrdiff_t> starts_;
  std::size_t ranges_ = 0;
};

/// @return  the first case that differs, or -1; and in `many` the cases with several runs
index_t wrong_case(std::vector<case_of_resolve> cases, index_t threads, index_t* many = nullptr) {
  const std::vector<answer> made = table(cases).resolve(cases, threads);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const answer expected = on_host(cases[i]);
    const bool same_size = made[i].size.ranges == expected.size.ranges && made[i].size.tokens == expected.size.tokens;
    if (!same_size || made[i].ranges != expected.ranges || made[i].before != expected.before)
      return static_cast<index_t>(i);
    if (many != nullptr && expected.size.ranges > 4) ++*many;
  }
  return -1;
}

std::vector<case_of_resolve> random_cases(std::uint64_t seed, index_t count, index_t most_segments) {
  unit::random random(seed);
  std::vector<case_of_resolve> cases;
  for (index_t i = 0; i < count; ++i) cases.push_back(random_case(random, random.below(most_segments + 1)));
  return cases;
}

}  // namespace

TEST_CASE("a block finds the runs that the host finds") {
  index_t many = 0;
  zoomr_test::in_all_orders([&](const std::string& order) {
    CAPTURE(order);
    REQUIRE(wrong_case(random_cases(1, 300, 60), 32, &many) == -1);   // one tile
    REQUIRE(wrong_case(random_cases(2, 200, 400), 32, &many) == -1);  // several tiles
    REQUIRE(wrong_case(random_cases(3, 50, 1000), 64, &many) == -1);
    REQUIRE(wrong_case(random_cases(4, 10, 1100), 0, &many) == -1);
  });
  CHECK(many > 500);
}

TEST_CASE("no segments, one, and a tile full of them and one more or less") {
  for (const index_t segments : {0, 1, 2, 125, 126, 127, 128, 129, 254, 255, 256}) {
    unit::random random(static_cast<std::uint64_t>(segments) + 10);
    std::vector<case_of_resolve> cases;
    for (int i = 0; i < 20; ++i) cases.push_back(random_case(random, segments));
    CAPTURE(segments);
    CHECK(wrong_case(cases, 32) == -1);
  }
}

TEST_CASE("65,536 segments are resolved by a block") {
  unit::random random(7);
  CHECK(wrong_case({random_case(random, 65536)}, 0) == -1);
}

TEST_CASE("no barrier of resolving can be left out") {
  const auto right = [] { return wrong_case(random_cases(5, 3, 300), 64) == -1; };
  CHECK(zoomr_test::barriers_not_missed(right) == std::vector<std::string>{});
}

}  // namespace zoomr

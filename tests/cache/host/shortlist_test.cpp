// SPDX-License-Identifier: Apache-2.0
// Choices by a rounded index take what choices take that score everything: of the parts, with bounds in double, and of
// whole caches, of which one records its choices and so scores everything.
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>
#include <zoomr/cache/host/choosing/shortlist.hpp>
#include <zoomr/policy/any_policy_of.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

namespace zoomr_test {
namespace {

namespace detail = zoomr::detail;
using zoomr::take_limits;

const std::uint64_t seeds =
    std::getenv("ZOOMR_SEEDS") != nullptr ? std::strtoull(std::getenv("ZOOMR_SEEDS"), nullptr, 10) : 6;
constexpr shape model{2, 6, 2, 16};

constexpr auto pages_by_box =
    zoomr::compose(zoomr::fixed_pages{.longest = 2}, zoomr::key_box{}, zoomr::box_bound{},
                   zoomr::pooled_score{.over_group = zoomr::pool::max}, zoomr::top_k{.segments = 5},
                   zoomr::every_token{}, zoomr::zones{.open = zoomr::unlimited, .dense_layers = 1});
constexpr auto sentences_by_mean = zoomr::compose(
    zoomr::sentences{.longest = 3}, zoomr::key_mean{}, zoomr::running_mean{}, zoomr::mean_dot{}, zoomr::pooled_score{},
    zoomr::fill_budget{.tokens = 40}, zoomr::every_token{}, zoomr::zones{.sinks = 3, .recent = 6, .open = 20});
constexpr auto heads_alone =
    zoomr::compose(zoomr::fixed_pages{.longest = 2}, zoomr::key_mean{}, zoomr::mean_dot{},
                   zoomr::pooled_score{.per = zoomr::scope::head}, zoomr::top_k{.segments = 9, .tokens = 13},
                   zoomr::boundaries{.at_most = 3}, zoomr::zones{.recent = 4});
constexpr auto uncut = zoomr::compose(zoomr::fixed_pages{.longest = 3}, zoomr::key_box{}, zoomr::box_bound{},
                                      zoomr::pooled_score{}, zoomr::fill_budget{.tokens = 30, .cut = false},
                                      zoomr::every_token{}, zoomr::zones{.sinks = 2, .recent = 5});

struct dice_of_floats {
  dice random;
  explicit dice_of_floats(std::uint64_t seed) : random(seed) {}
  float operator()() { return static_cast<float>(random.between(-1000, 1000)) / 1000.0f; }
};

/// Summaries [segments, cells]: far from zero in some cells, constant in one, wild in a few segments.
std::vector<float> summaries_of(index_t segments, index_t cells, std::uint64_t seed, bool with_wild) {
  dice_of_floats number(seed);
  std::vector<float> all;
  for (index_t id = 0; id < segments; ++id) {
    const bool wild = with_wild && number.random.chance(2);
    for (index_t i = 0; i < cells; ++i) {
      const float far = i % 5 == 0 ? 300.0f : i % 7 == 0 ? -0.01f : 0.0f;
      float of_cell = i == 3 ? 2.5f : far + (i % 4 == 0 ? 0.001f : 1.0f) * number();
      if (wild && number.random.chance(30)) {
        of_cell =
            number.random.one_of(std::array{zoomr::infinity, -zoomr::infinity, zoomr::not_a_number, 1e35f, -7e3f});
      }
      all.push_back(of_cell);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a rounded score is off by its margin at most, and what is too far to be rounded is known") {
  constexpr index_t cells = 48;
  double closest = 1e30;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    const index_t segments = 256 + static_cast<index_t>(seed * 37 % 300), at_first = 256;
    const std::vector<float> summaries = summaries_of(segments, cells, seed, seed % 3 == 0);
    detail::rounded_index index(2, cells, 600);
    CHECK(index.lane(1, 256).segments == 0);
    index.renew(1, summaries.data(), 0, at_first);
    CHECK(index.lane(1, at_first + 1).segments == 0);
    for (index_t known = at_first; known < segments; known += 9) {
      index.renew(1, summaries.data(), known, std::min(segments, known + 9));
    }
    CHECK(index.lane(0, 256).segments == 0);
    CHECK(index.lane(1, 255).segments == 0);
    const detail::rounded_lane lane = index.lane(1, segments);
    REQUIRE(lane.segments == segments);
    dice_of_floats number(seed + 100);
    for (int query = 0; query < 8; ++query) {
      std::vector<float> weights, sizes;
      for (index_t i = 0; i < cells; ++i) weights.push_back(i % 6 == query % 6 ? 0.0f : number());
      for (const float weight : weights) sizes.push_back(std::fabs(weight));
      std::vector<float> rounded = weights;
      float offset = 0;
      const float margin = lane.weigh(rounded, view<const float>(sizes), offset);
      index_t outside = 0;
      for (index_t id = 0; id < segments; ++id) {
        double exact = 0, by_rows = double{offset};
        bool finite = true;
        for (index_t i = 0; i < cells; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const float cell = summaries[static_cast<std::size_t>(id * cells + i)];
          finite = finite && std::fabs(cell) < 1e30f;
          exact += double{weights[at]} * double{cell};
          by_rows +=
              double{rounded[at]} * static_cast<double>(lane.rows[detail::rounded_lane::place(cells, id, i)].bits);
        }
        outside += lane.outside[id] ? 1 : 0;
        if (!finite) CHECK(lane.outside[id]);
        if (lane.outside[id]) continue;
        REQUIRE(std::fabs(exact - by_rows) <= double{margin});
        closest = std::min(closest, double{margin} / std::max(std::fabs(exact - by_rows), 1e-30));
      }
      CHECK(outside < segments / 4);
    }
    index.forget();
    CHECK(index.lane(1, 256).segments == 0);
  }
  CHECK(closest < 6);  // the margin is no larger than it need be
}

TEST_CASE("blocks have the same scores on every path: the largest of the heads' sums, in integers") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    dice random(seed);
    const index_t blocks = random.between(1, 5), pairs = 4 * random.between(1, 20), heads = random.between(1, 4);
    const index_t segments = blocks * detail::block_segments;
    std::vector<zoomr::int8> rows(static_cast<std::size_t>(segments * pairs * 2));
    for (zoomr::int8& number : rows) {
      number.bits = static_cast<std::int8_t>(random.chance(20) ? random.one_of(std::array{-127, 127})
                                                               : random.between(-127, 127));
    }
    std::vector<std::int32_t> weights, offsets;
    const auto weight = [&] {
      return random.chance(20) ? random.one_of(std::array{-32767, 32767, 0, -1}) : random.between(-32767, 32767);
    };
    std::vector<std::int64_t> expected(static_cast<std::size_t>(segments), std::numeric_limits<std::int64_t>::min());
    for (index_t h = 0; h < heads; ++h) {
      offsets.push_back(random.between(-(1 << 30), 0));
      std::vector<std::int64_t> sums(static_cast<std::size_t>(segments), offsets.back());
      for (index_t pair = 0; pair < pairs; ++pair) {
        const index_t both[] = {weight(), weight()};
        weights.push_back(static_cast<std::int32_t>(static_cast<std::uint32_t>(both[1]) << 16 |
                                                    (static_cast<std::uint32_t>(both[0]) & 0xffffu)));
        for (index_t id = 0; id < segments; ++id) {
          for (const index_t i : {0, 1}) {
            const std::int64_t at = detail::rounded_lane::place(2 * pairs, id, 2 * pair + i);
            sums[static_cast<std::size_t>(id)] += std::int64_t{both[i]} * rows[static_cast<std::size_t>(at)].bits;
          }
        }
      }
      for (std::size_t id = 0; id < sums.size(); ++id) expected[id] = std::max(expected[id], sums[id]);
    }
    const auto check = [&](auto score) {
      std::vector<std::int32_t> scores(static_cast<std::size_t>(segments)), largest(static_cast<std::size_t>(blocks));
      score(rows.data(), blocks, pairs, weights.data(), offsets.data(), heads, scores.data(), largest.data());
      for (std::size_t id = 0; id < scores.size(); ++id) REQUIRE(scores[id] == expected[id]);
      for (std::size_t block = 0; block < largest.size(); ++block) {
        const auto first = expected.begin() + static_cast<std::ptrdiff_t>(block * detail::block_segments);
        CHECK(largest[block] == *std::max_element(first, first + detail::block_segments));
      }
    };
    check(detail::score_blocks_plainly);
    for (const zoomr::cpu_path path : {zoomr::cpu_path::avx2, zoomr::cpu_path::avx512, zoomr::cpu_path::neon}) {
      if (!zoomr::has_cpu_path(path)) continue;
      CHECK(detail::dispatch(
          path, [&](auto vectors) { check([&](auto... arguments) { score_blocks(vectors, arguments...); }); }));
    }
  }
}

TEST_CASE("a choice by a rounded index takes what the walk over all segments takes") {
  int made = 0, tried = 0;
  const auto check = [&](const auto& policy, std::uint64_t seed, bool wild, bool alike) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    CAPTURE(seed);
    dice random(seed);
    const detail::any_policy_of<policy_type> any(policy);
    REQUIRE(any.shortlists());
    zoomr::config limits = limits_for(1200);
    const shape of{1, 6, 2, 16};
    const detail::layout sizes(of, any, limits);
    const auto cells = static_cast<index_t>(sizes.segment_summary());
    REQUIRE(sizes.rounded_cells == cells);
    const zoomr::score_logits logits = limits.logits.of_scores(of.head_dim);
    const index_t segments = random.chance(40)
                                 ? random.one_of(std::array{256, 257, 271, 272, 273, 287, 288, 511, 512, 513})
                                 : random.between(256, 700);
    std::vector<float> summaries = summaries_of(segments, cells, seed, wild);
    if (alike) {
      for (index_t id = 4; id < segments; ++id) {  // four different ones: ties
        for (index_t i = 0; i < cells; ++i) {
          summaries[static_cast<std::size_t>(id * cells + i)] = summaries[static_cast<std::size_t>(id % 4 * cells + i)];
        }
      }
    }
    detail::rounded_index index(1, cells, sizes.most_segments);
    index.renew(0, summaries.data(), 0, segments);
    detail::shortlist list(sizes, any, logits);
    const index_t heads = policy.aggregate.per == zoomr::scope::head ? 1 : of.group();
    std::vector<float> asked, scores(static_cast<std::size_t>(heads * segments));
    dice_of_floats number(seed + 9);
    const float peak = random.chance(30) ? 500.0f : 1.0f;
    for (index_t i = 0; i < heads * of.head_dim; ++i) {
      const float size = i < of.head_dim ? peak : 1.0f;  // so is the margin of the first head
      asked.push_back(random.chance(10) ? 0.0f : size * number());
    }
    // Segments of 1 to 4 tokens, some of them with gaps between, and what eviction has left of their tokens.
    std::vector<zoomr::segment> cut;
    index_t end = 0;
    for (index_t id = 0; id < segments; ++id) {
      const index_t begin = end + (random.chance(5) ? 2 : 0);
      end = begin + random.between(1, 4);
      cut.push_back({begin, end, end, begin, end, end - 1});
    }
    std::vector<index_t> kept;
    const index_t compacted = random.chance(50) ? random.between(1, end) : 0;
    for (index_t position = 0; position < compacted; ++position) {
      if (random.chance(60)) kept.push_back(position);
    }
    const zoomr::slot_map slots{kept, kept.empty() ? 0 : compacted};
    const index_t front = random.chance(30) ? 0 : random.between(0, end / 3), back = random.between(front, end);
    const detail::offered_segments offered{
        cut, {0, front, random.chance(70) ? std::max(front, end - 9) : back, end + 5}, slots};
    std::vector<index_t> tokens, order(static_cast<std::size_t>(segments));
    std::vector<zoomr::votes_t> votes;
    for (index_t id = 0; id < segments; ++id) {
      tokens.push_back(offered.tokens(id));
      votes.push_back(tokens.back() > 0 ? 0 : zoomr::not_eligible);
      const bool between = id >= offered.between().first && id < offered.between().last;
      if (tokens.back() > 0) REQUIRE(between);
    }
    const view<const float, 2> queries(asked.data(), {heads, of.head_dim});
    const view<float, 2> room(scores.data(), {heads, segments});
    any.score.score(queries, reinterpret_cast<const std::byte*>(summaries.data()), votes, room);
    any.aggregate.add(room, tokens, logits, votes, order);
    for (int i = 0; i < 6; ++i) {
      const index_t room_used = random.between(0, 12);
      take_limits most = any.select.limits(room_used);
      if (i > 0) most.segments = random.one_of(std::array{0, 1, 2, 9, 40, segments - 1, segments, zoomr::unlimited});
      if (i > 0) most.room = random.one_of(std::array{0, 1, 7, 30, 200, end / 2, end, zoomr::unlimited});
      if (i > 0) most.cut = random.chance(50);
      ++tried;
      if (!list.choose(queries, index.lane(0, segments), summaries.data(), most, offered)) continue;
      ++made;
      std::vector<zoomr::level> levels(static_cast<std::size_t>(segments), zoomr::level::summary);
      zoomr::selection_row row{levels};
      zoomr::best_first best(segments, zoomr::by_votes{votes}, order);
      if (i == 0) {
        any.select.choose(best, {tokens, room_used, any.aggregate.least, 0, 0, nullptr}, row);
      } else {
        zoomr::take_best(best, most, {tokens, 0, any.aggregate.least, 0, 0, nullptr}, row);
      }
      std::vector<index_t> taken;
      for (index_t id = 0; id < segments; ++id) {
        if (row.level_at(id) == zoomr::level::details) taken.push_back(id);
      }
      CHECK(std::vector<index_t>(list.taken().begin(), list.taken().end()) == taken);
      CHECK(row.cut_segment == list.cut_segment);
      CHECK(row.cut_tokens == list.cut_tokens);
    }
  };
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const bool wild = seed % 4 == 0, alike = seed % 5 == 0;
    check(pages_by_box, seed, wild, alike);
    check(sentences_by_mean, seed, wild, alike);
    check(heads_alone, seed, wild, alike);
    check(uncut, seed, wild, alike);
  }
  CHECK(made * 2 > tried);
  CHECK(made < tried);
}

TEST_CASE("a row that lists what it takes has the levels of one that does not, whatever was in its place before") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    dice random(seed);
    constexpr index_t most = 320;
    detail::selection rows(2, most, true);
    index_t segments = 256, listed = 0;
    for (int i = 0; i < 60; ++i) {
      const index_t r = random.between(0, 1);
      segments = std::clamp(segments + random.between(-2, 4), 200, most);
      std::vector<zoomr::level> wanted(static_cast<std::size_t>(segments), zoomr::level::summary);
      std::vector<index_t> ids;
      const index_t chance = random.chance(10) ? 60 : 4;  // percent: more than a list has room for
      for (index_t id = 0; id < segments; ++id) {
        if (random.chance(chance)) ids.push_back(id), wanted[static_cast<std::size_t>(id)] = zoomr::level::details;
      }
      const index_t cut = ids.empty() ? -1 : ids.back();
      if (random.chance(15)) {
        zoomr::selection_row& row = rows.renew(r, segments);
        std::copy(wanted.begin(), wanted.end(), row.levels.begin());
        CHECK_FALSE(rows.listed(r));
      } else {
        if (random.chance(10)) rows.clear();
        rows.take(r, segments, ids, cut, 3);
        CHECK(rows.listed(r) == (static_cast<index_t>(ids.size()) <= most / 8));
        CHECK(rows.row(r).cut_segment == cut);
        CHECK(rows.row(r).cut_tokens == 3);
      }
      const view<const zoomr::level> levels = rows.row(r).levels;
      CHECK(std::vector<zoomr::level>(levels.begin(), levels.end()) == wanted);
      if (rows.listed(r)) CHECK(std::vector<index_t>(rows.taken(r).begin(), rows.taken(r).end()) == ids);
      listed += rows.listed(r) ? 1 : 0;
    }
    CHECK(listed > 30);
    CHECK(listed < 60);
  }
}

TEST_CASE(
    "caches with and without a shortlist give the same bits: drafts, rollbacks, forks, saving, erasing, windows") {
  const auto check = [&](const auto& policy, kind look, std::uint64_t seed, bool erases = true) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    CAPTURE(seed);
    const tape says = make_tape(model, look, markup::sentences, 830, 700, seed);
    const tape other = with_other_end(says, 780, 700, seed + 1);
    const zoomr::token_range span{97, 131};
    const tape left = says.without(span);
    zoomr::config limits = limits_for(says.size(), 3);
    if (seed % 3 == 0 && erases) limits.logits.window = 640;
    player<policy_type> fast(model, policy, limits), plain(model, policy, limits);
    zoomr::choice_trace choices;
    plain.cache.trace_choices(&choices);
    const auto live = [&](player<policy_type>& plays) {
      dice random(seed);
      plays.open(says);
      for (const index_t last : {300, 650, 700}) plays.play({{0, says.between(plays.tokens(), last), last == 700}});
      for (index_t rollbacks = 0, longest = 0; plays.tokens() < 780;) {
        part draft = plays.next(0, random.between(1, 4));
        if (random.chance(30)) draft.ids.back() = delimiter_id;
        plays.play({draft});
        longest = std::max(longest, plays.tokens());
        if (random.chance(20)) {  // other text, whose sentences are shorter, is committed and rolled back
          const index_t before = plays.tokens();
          for (int i = 0; i < 4; ++i) plays.play({{0, {delimiter_id}, false, true}});
          longest = std::max(longest, plays.tokens());
          plays.rollback(0, before);
        }
        const index_t to = std::max(longest - 20, index_t{701});
        if (to < plays.tokens() && random.chance(15) && ++rollbacks < 6) plays.rollback(0, to);
      }
      plays.rollback(0, 779);
      const index_t forked = fork(plays, 0, other);
      const saved_bytes bytes = saved(plays.cache, plays.at(0).seq);
      memory_source source(bytes);
      plays.voices.push_back({plays.cache.load(source), &says, {}});
      if (erases) {
        plays.cache.erase(plays.at(2).seq, span);
        plays.at(2).says = &left;
      }
      for (const index_t v : {index_t{0}, forked, index_t{2}}) plays.play_plainly(v);
    };
    live(fast), live(plain);
    for (index_t v = 0; v < 3; ++v) CHECK(difference(fast.at(v).log, plain.at(v).log) == "");
    const zoomr::statistics a = fast.cache.stats(fast.at(0).seq), b = plain.cache.stats(plain.at(0).seq);
    CHECK(a.chosen == b.chosen);
    CHECK(a.zooms == b.zooms);
    CHECK(a.attended == b.attended);
    CHECK(a.chosen > 0);
  };
  constexpr kind looks[] = {kind::uniform, kind::peaked, kind::ties, kind::integers, kind::with_infinities};
  auto evicting = zoomr::compose(sentences_by_mean.segment, zoomr::observation_window{.tokens = 560, .queries = 8},
                                 sentences_by_mean.summarize, sentences_by_mean.query, sentences_by_mean.score,
                                 sentences_by_mean.aggregate, sentences_by_mean.select, sentences_by_mean.refresh,
                                 sentences_by_mean.zone);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const kind look = looks[seed % 5];
    check(pages_by_box, look, seed);
    check(sentences_by_mean, look, seed);
    check(heads_alone, look, seed);
    check(uncut, look, seed);
    check(evicting, look, seed, false);
  }
}

}  // namespace zoomr_test

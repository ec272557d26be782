// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/policy/aggregate/pooled_score.hpp>
#include <zoomr/policy/select/fill_budget.hpp>
#include <zoomr/policy/select/select_none.hpp>
#include <zoomr/policy/select/top_k.hpp>
#include <zoomr/policy/select/top_p.hpp>

#include <algorithm>  // std::stable_sort, std::find, std::min
#include <numeric>    // std::accumulate
#include <string>     // std::string

namespace zoomr {

namespace {

/// What a selector is asked, and what its answer attends of each segment's details.
struct question {
  std::vector<votes_t> votes;
  std::vector<index_t> tokens;  // attendable
  index_t room_used = 0;
  votes_t least = 1;

  index_t segments() const { return static_cast<index_t>(votes.size()); }

  /// Wanted segments, best first; ties to the lower id.
  std::vector<index_t> wanted() const {
    std::vector<index_t> ids;
    for (index_t id = 0; id < segments(); ++id) {
      if (votes[unit::size(id)] != not_eligible && votes[unit::size(id)] >= least) ids.push_back(id);
    }
    std::stable_sort(ids.begin(), ids.end(),
                     [&](index_t a, index_t b) { return votes[unit::size(a)] > votes[unit::size(b)]; });
    return ids;
  }
};

/// Tokens attended of each segment's details.
using taken = std::vector<index_t>;

template <class Selector>
taken ask(const Selector& select, const question& asked) {
  std::vector<index_t> order(unit::size(asked.segments()));
  std::vector<level> levels(unit::size(asked.segments()), level::summary);
  selection_row row{levels};
  best_first best(asked.segments(), by_votes{asked.votes}, order);
  select.choose(best, selection_input{asked.tokens, asked.room_used, asked.least, 99}, row);
  taken made;
  for (index_t id = 0; id < asked.segments(); ++id) {
    REQUIRE(levels[unit::size(id)] != level::dropped);
    const bool details = levels[unit::size(id)] == level::details;
    REQUIRE_FALSE((details && asked.votes[unit::size(id)] == not_eligible));
    const index_t all = asked.tokens[unit::size(id)];
    made.push_back(!details ? 0 : id == row.cut_segment ? std::min(all, row.cut_tokens) : all);
    if (id == row.cut_segment) REQUIRE((details && row.cut_tokens > 0 && row.cut_tokens < all));
  }
  return made;
}

/// Both selectors are the same walk: whole segments, best first, while there is room and number left; the first
/// that does not fit is cut, or ends it.
taken walk(const question& asked, index_t segments, index_t room, bool cut) {
  taken made(unit::size(asked.segments()), 0);
  for (const index_t id : asked.wanted()) {
    if (segments-- == 0 || room <= 0) break;
    const index_t fits = std::min(asked.tokens[unit::size(id)], room);
    if (fits < asked.tokens[unit::size(id)] && !cut) break;
    made[unit::size(id)] = fits;
    room -= fits;
  }
  return made;
}

/// What `reach` neighbours add to a walk that was not cut, and has left so much room.
taken with_neighbours(const question& asked, taken made, index_t reach, index_t room) {
  std::vector<index_t> eligible;
  for (index_t id = 0; id < asked.segments(); ++id) {
    if (asked.votes[unit::size(id)] != not_eligible) eligible.push_back(id);
  }
  std::vector<index_t> bring = asked.wanted();
  std::erase_if(bring, [&](index_t id) { return made[unit::size(id)] == 0; });
  for (const index_t id : bring) {
    const auto at = std::find(eligible.begin(), eligible.end(), id) - eligible.begin();
    for (std::ptrdiff_t i = at - reach; i <= at + reach; ++i) {
      if (i < 0 || i >= static_cast<std::ptrdiff_t>(eligible.size())) continue;
      const std::size_t near = unit::size(eligible[static_cast<std::size_t>(i)]);
      if (made[near] > 0) continue;
      made[near] = std::min(asked.tokens[near], room);
      room -= made[near];
    }
  }
  return made;
}

question random_question(unit::random& random) {
  question made;
  const index_t segments = random.below(40);
  for (index_t id = 0; id < segments; ++id) {
    const bool eligible = random.chance(0.8);
    made.votes.push_back(eligible ? random.below(6) : not_eligible);
    made.tokens.push_back(eligible ? random.between(1, 30) : 0);
  }
  made.room_used = random.below(60);
  made.least = random.chance(0.5) ? 1 : pooled_score::least;
  return made;
}

}  // namespace

TEST_CASE("top_k takes the best few, ties to the lower id") {
  const question asked{{3, 7, 7, 0, 5}, {10, 20, 30, 40, 50}};
  CHECK(ask(top_k{.segments = 1}, asked) == taken{0, 20, 0, 0, 0});
  CHECK(ask(top_k{.segments = 2}, asked) == taken{0, 20, 30, 0, 0});
  CHECK(ask(top_k{.segments = 9}, asked) == taken{10, 20, 30, 0, 50});  // a votes of 0 is not wanted
}

TEST_CASE("top_k cuts the first that does not fit into its tokens") {
  const question asked{{3, 7, 7, 0, 5}, {10, 20, 30, 40, 50}};
  CHECK(ask(top_k{.segments = 3, .tokens = 50}, asked) == taken{0, 20, 30, 0, 0});
  CHECK(ask(top_k{.segments = 3, .tokens = 51}, asked) == taken{0, 20, 30, 0, 1});
  CHECK(ask(top_k{.segments = 3, .tokens = 19}, asked) == taken{0, 19, 0, 0, 0});
}

TEST_CASE("top_k counts its tokens whatever the zones attend") {
  question asked{{1, 2}, {10, 20}};
  asked.room_used = 1000;
  CHECK(ask(top_k{.segments = 2, .tokens = 30}, asked) == taken{10, 20});
}

TEST_CASE("fill_budget takes whole segments until its tokens are attended, zones included") {
  question asked{{3, 7, 5}, {10, 20, 30}};
  asked.room_used = 15;
  CHECK(ask(fill_budget{.tokens = 75}, asked) == taken{10, 20, 30});
  CHECK(ask(fill_budget{.tokens = 65}, asked) == taken{0, 20, 30});
  CHECK(ask(fill_budget{.tokens = 64}, asked) == taken{0, 20, 29});
  CHECK(ask(fill_budget{.tokens = 64, .cut = false}, asked) == taken{0, 20, 0});
  CHECK(ask(fill_budget{.tokens = 15}, asked) == taken{0, 0, 0});
  CHECK(ask(fill_budget{.tokens = 3}, asked) == taken{0, 0, 0});
}

TEST_CASE("fill_budget does not look for smaller segments behind one that does not fit") {
  const question asked{{9, 8}, {30, 1}};
  CHECK(ask(fill_budget{.tokens = 20, .cut = false}, asked) == taken{0, 0});
}

TEST_CASE("any score will do where the aggregator says so") {
  question asked{{order_key(-5.0f), order_key(std::numeric_limits<float>::quiet_NaN()), not_eligible}, {1, 1, 0}};
  asked.least = pooled_score::least;
  CHECK(ask(fill_budget{.tokens = 9}, asked) == taken{1, 1, 0});
  CHECK(ask(top_k{.segments = 1}, asked) == taken{1, 0, 0});
}

TEST_CASE("selectors are the walk down a stable sort, and keep their budget") {
  unit::random random(40);
  for (int round = 0; round < 1000; ++round) {
    const question asked = random_question(random);
    const index_t segments = random.between(1, 8);
    const index_t tokens = random.between(1, 120);
    const bool cut = random.chance(0.5);
    CAPTURE(round);
    REQUIRE(ask(top_k{.segments = segments, .tokens = tokens}, asked) == walk(asked, segments, tokens, true));
    const taken filled = ask(fill_budget{.tokens = tokens, .cut = cut}, asked);
    REQUIRE(filled == walk(asked, unlimited, tokens - asked.room_used, cut));
    const index_t sum = std::accumulate(filled.begin(), filled.end(), 0);
    REQUIRE((sum == 0 || sum + asked.room_used <= tokens));
  }
}

TEST_CASE("top_p takes as few segments as hold its share, and one at least") {
  const question asked{{30, 60, 0, 10, not_eligible}, {10, 20, 30, 40, 0}};
  CHECK(ask(top_p{.share = 0.01f}, asked) == taken{0, 20, 0, 0, 0});
  CHECK(ask(top_p{.share = 0.6f}, asked) == taken{0, 20, 0, 0, 0});
  CHECK(ask(top_p{.share = 0.61f}, asked) == taken{10, 20, 0, 0, 0});
  CHECK(ask(top_p{.share = 1.0f}, asked) == taken{10, 20, 0, 40, 0});
  CHECK(ask(top_p{.share = 1.0f, .segments = 2}, asked) == taken{10, 20, 0, 0, 0});
  CHECK(ask(top_p{}, question{{not_eligible}, {0}}) == taken{0});
  CHECK(ask(top_p{}, question{{}, {}}).empty());
  CHECK(ask(top_p{}, question{{0, 0}, {5, 5}}) == taken{0, 0});  // nobody wants them
  question even{{0, 0}, {5, 5}};
  even.least = 0;
  CHECK(ask(top_p{}, even) == taken{5, 0});
}

TEST_CASE("top_p cuts the first that does not fit into its tokens") {
  const question asked{{30, 60, 0, 10, not_eligible}, {10, 20, 30, 40, 0}};
  CHECK(ask(top_p{.share = 1.0f, .tokens = 70}, asked) == taken{10, 20, 0, 40, 0});
  CHECK(ask(top_p{.share = 1.0f, .tokens = 69}, asked) == taken{10, 20, 0, 39, 0});
  CHECK(ask(top_p{.share = 1.0f, .tokens = 30}, asked) == taken{10, 20, 0, 0, 0});
  CHECK(ask(top_p{.share = 1.0f, .tokens = 1}, asked) == taken{0, 1, 0, 0, 0});
  CHECK(ask(top_p{.share = 0.6f, .tokens = 70}, asked) == taken{0, 20, 0, 0, 0});
}

TEST_CASE("top_p brings the neighbours of what it takes, and theirs not") {
  const question asked{{0, 0, 90, 0, 0, 10, 0}, {1, 2, 3, 4, 5, 6, 7}};
  CHECK(ask(top_p{.neighbours = 0}, asked) == taken{0, 0, 3, 0, 0, 0, 0});
  CHECK(ask(top_p{.neighbours = 1}, asked) == taken{0, 2, 3, 4, 0, 0, 0});
  CHECK(ask(top_p{.neighbours = 2}, asked) == taken{1, 2, 3, 4, 5, 0, 0});
  CHECK(ask(top_p{.neighbours = unlimited}, asked) == taken{1, 2, 3, 4, 5, 6, 7});
  CHECK(ask(top_p{.share = 1.0f, .neighbours = 1}, asked) == taken{0, 2, 3, 4, 5, 6, 7});
  CHECK(ask(top_p{.segments = 1, .neighbours = 1}, asked) == taken{0, 2, 3, 4, 0, 0, 0});
  CHECK(ask(top_p{.neighbours = 2}, question{{0, 0}, {5, 5}}) == taken{0, 0});  // nothing is taken
}

TEST_CASE("neighbours at an end of what is eligible, and over what is not") {
  const question first{{not_eligible, 9, 0, not_eligible}, {0, 2, 3, 0}};
  CHECK(ask(top_p{.neighbours = 2}, first) == taken{0, 2, 3, 0});
  const question last{{0, 0, 9}, {1, 2, 3}};
  CHECK(ask(top_p{.neighbours = 1}, last) == taken{0, 2, 3});
  const question between{{0, 0, not_eligible, 9, not_eligible, not_eligible, 0, 0}, {1, 2, 0, 3, 0, 0, 4, 5}};
  CHECK(ask(top_p{.neighbours = 1}, between) == taken{0, 2, 0, 3, 0, 0, 4, 0});
}

TEST_CASE("one that is taken already is a neighbour too") {
  const question asked{{0, 5, 5, 0, 0}, {1, 2, 3, 4, 5}};
  CHECK(ask(top_p{.share = 1.0f, .neighbours = 1}, asked) == taken{1, 2, 3, 4, 0});
}

TEST_CASE("neighbours take the room that is left, those of the best first") {
  const question asked{{0, 1, 0, 0, 8, 0}, {10, 10, 10, 10, 10, 10}};
  const auto with = [&](index_t tokens) { return ask(top_p{.share = 1.0f, .tokens = tokens, .neighbours = 1}, asked); };
  CHECK(with(19) == taken{0, 9, 0, 0, 10, 0});
  CHECK(with(20) == taken{0, 10, 0, 0, 10, 0});
  CHECK(with(21) == taken{0, 10, 0, 1, 10, 0});
  CHECK(with(45) == taken{5, 10, 0, 10, 10, 10});
  CHECK(with(60) == taken{10, 10, 10, 10, 10, 10});
}

TEST_CASE("top_p is the walk down a stable sort, and then its neighbours, within its tokens") {
  unit::random random(42);
  index_t brought = 0, cut = 0;
  for (int round = 0; round < 1000; ++round) {
    question asked = random_question(random);
    asked.least = random.between(1, 3);  // below it the walk ends, but for 0: all of the share is taken before that
    const index_t segments = random.between(1, 8);
    const index_t reach = random.below(4);
    const index_t tokens = random.chance(0.3) ? unlimited : random.between(1, 200);
    CAPTURE(round);
    const taken best = walk(asked, segments, tokens, true);
    const index_t room = tokens - std::accumulate(best.begin(), best.end(), 0);
    const taken expected = with_neighbours(asked, best, reach, room);
    const index_t all = std::accumulate(asked.tokens.begin(), asked.tokens.end(), 0);
    const index_t sum = std::accumulate(expected.begin(), expected.end(), 0);
    const top_p select{.share = 1.0f, .segments = segments, .tokens = tokens, .neighbours = reach};
    REQUIRE(ask(select, asked) == expected);
    REQUIRE(sum <= std::min(tokens, all));
    brought += expected != best ? 1 : 0;
    cut += expected != best && sum == tokens ? 1 : 0;
  }
  CHECK(brought > 300);
  CHECK(cut > 50);
}

TEST_CASE("a log of choices has room for neighbours") {
  CHECK(top_p{.segments = 4}.most_segments() == 4);
  CHECK(top_p{.segments = 4, .neighbours = 2}.most_segments() == 20);
  CHECK(top_p{.segments = unlimited, .neighbours = 1}.most_segments() == unlimited);
  CHECK(top_p{.segments = unlimited, .neighbours = unlimited}.most_segments() == unlimited);
}

TEST_CASE("select_none takes nothing") {
  unit::random random(41);
  for (int round = 0; round < 20; ++round) {
    const question asked = random_question(random);
    CHECK(ask(select_none{}, asked) == taken(unit::size(asked.segments()), 0));
  }
}

TEST_CASE("a selector says where its walk ends") {
  CHECK(top_k{.segments = 3, .tokens = 9}.limits(5) == take_limits{.segments = 3, .room = 9});
  CHECK(fill_budget{.tokens = 9}.limits(5) == take_limits{.room = 4});
  CHECK(fill_budget{.tokens = 9, .cut = false}.limits(12) == take_limits{.room = -3, .cut = false});
  CHECK(top_p{.share = 0.25f, .segments = 3}.limits(5) == take_limits{.segments = 3, .share = 0.25f});
  CHECK(top_p{.tokens = 9, .neighbours = 2}.limits(5) == take_limits{.segments = 4, .room = 9, .share = 0.5f});
  CHECK(select_none{}.limits(5) == take_limits{.segments = 0});
  CHECK(take_limits{.share = 0.3f}.wanted(1000000007) == 300000014);  // in double: 0.3f is a little more than 0.3
}

TEST_CASE("each problem of a selector has its sentence") {
  CHECK(top_k{}.problem() == nullptr);
  CHECK(top_k{.segments = 0}.problem() == std::string("top_k: segments and tokens must be at least 1"));
  CHECK(top_k{.tokens = 0}.problem() == std::string("top_k: segments and tokens must be at least 1"));
  CHECK(top_p{}.problem() == nullptr);
  for (const top_p bad : {top_p{.share = 0.0f}, top_p{.share = 1.5f}, top_p{.segments = 0}})
    CHECK(bad.problem() == std::string("top_p: segments must be at least 1, and share in (0, 1]"));
  for (const top_p bad : {top_p{.tokens = 0}, top_p{.neighbours = -1}})
    CHECK(bad.problem() == std::string("top_p: tokens must be at least 1, and neighbours not negative"));
  CHECK(fill_budget{}.problem() == nullptr);
  CHECK(fill_budget{.tokens = 0}.problem() == std::string("fill_budget: tokens must be at least 1"));
}

TEST_CASE("a budget must hold the zones that count in it") {
  const std::string sentence = "the budget is smaller than sinks + window: raise tokens, or lower sinks or recent";
  CHECK(fill_budget{.tokens = 64}.problem_with(zones{.sinks = 32, .recent = 32}) == nullptr);
  CHECK(fill_budget{.tokens = 63}.problem_with(zones{.sinks = 32, .recent = 32}) == sentence);
  CHECK(fill_budget{.tokens = 64}.problem_with(zones{.sinks = unlimited, .recent = unlimited}) == sentence);
}

}  // namespace zoomr

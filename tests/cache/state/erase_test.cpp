// SPDX-License-Identifier: Apache-2.0
// Erased spans: the sequence is that of the tokens that are left.
#include <cache/support/conversations.hpp>
#include <cache/support/players.hpp>
#include <cache/support/tiered_limits.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>
#include <paging/engines.hpp>
#include <support/state_digest.hpp>

#include <cmath>        // std::pow
#include <string_view>  // std::string_view

namespace zoomr_test {
namespace {

using zoomr::token_range;

constexpr shape model{2, 4, 2, 8};

/// What tokens from `first` on got.
result_log from(const result_log& log, index_t first) { return {log.lower_bound({first, 0}), log.end()}; }

/// The voice has lost a span, and goes on in the text without it.
template <class Player>
void erase(Player& plays, index_t v, token_range span, const tape& left) {
  plays.cache.erase(plays.at(v).seq, span);
  plays.at(v).says = &left;
  plays.at(v).log.clear();
}

/// Erases a span, and passes the tokens that are left to another cache: from `same` on both give the same.
/// @param until    tokens before the span is erased; fewer than the prompt has: while it is coming
/// @param by_next  what was chosen before differs: only tokens behind the next choice are compared
template <class Policy>
void check_as_if_never(const Policy& policy, const tape& says, index_t until, token_range span, bool by_next) {
  CAPTURE(span.first);
  CAPTURE(span.last);
  CAPTURE(until);
  const tape left = says.without(span);
  player<Policy> plays(model, policy, limits_for(says.size()));
  plays.open(says);
  if (until < says.prompt) {
    plays.play({{0, says.between(0, until), false}});
  } else {
    plays.play_plainly(0, until);
  }
  erase(plays, 0, span, left);
  const index_t tokens = until - span.size();
  REQUIRE(plays.tokens() == tokens);
  player<Policy> never(model, policy, limits_for(says.size()));
  never.open(left);
  if (until < says.prompt) {
    never.play({{0, left.between(0, tokens), false}});
  } else {
    never.play_plainly(0, tokens);
  }
  const auto segments = plays.cache.segments(plays.at(0).seq);
  const auto wanted = never.cache.segments(never.at(0).seq);
  REQUIRE(std::equal(segments.begin(), segments.end(), wanted.begin(), wanted.end()));
  REQUIRE(plays.cache.pinned(plays.at(0).seq) == pins_of(policy, left, tokens, segments));
  const state_digest made = digest_of(plays.cache, plays.at(0).seq), other = digest_of(never.cache, never.at(0).seq);
  for (const auto part : {state_digest::segments, state_digest::details, state_digest::summaries, state_digest::kept,
                          state_digest::free_pages}) {
    REQUIRE_MESSAGE(made.of[part] == other.of[part], state_digest::names[part]);
  }
  index_t same = tokens;
  if (by_next) {
    const auto& log = zoomr::inspection::core(never.cache).states[0].log;
    for (; log.last_position() < tokens && !never.done(); ++same) never.play_plainly(0, same + 1);
    REQUIRE(same < left.size());
  }
  plays.play_plainly(), never.play_plainly();
  REQUIRE(difference(from(plays.at(0).log, same), from(never.at(0).log, same)) == "");
}

TEST_CASE("without a span a sequence is that of the tokens that are left") {
  const auto check = [](const char* name, const auto& policy, markup text, bool by_next) {
    CAPTURE(std::string(name));
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      dice random(seed);
      const index_t prompt = 60, until = 130;
      const tape says = make_tape(model, kind::uniform, text, 230, prompt, seed);
      for (const token_range span : {token_range{prompt + 3, prompt + 4}, token_range{prompt + 1, prompt + 33},
                                     token_range{prompt - 9, prompt + 20}, token_range{1, 60}, token_range{17, 33},
                                     token_range{0, 16}, token_range{random.between(1, 60), random.between(61, 129)}}) {
        check_as_if_never(policy, says, until, span, by_next);
      }
      check_as_if_never(policy, says, 50, {0, 49}, by_next);
      check_as_if_never(policy, says, 50, {20, 41}, by_next);
    }
  };
  check("full", small::full, markup::sentences, false);
  check("sentence_box", small::sentence_box, markup::sentences, false);
  check("quest", small::quest, markup::sentences, false);
  check("arkvale", small::arkvale, markup::sentences, false);
  check("zoomr_one_pass", small::zoomr_one_pass, markup::pairs, true);
  check("zoomr_focus", small::zoomr_focus, markup::pairs, true);
  check("by_layer", small::by_layer, markup::pairs, true);
}

TEST_CASE("what an engine has named, and what is pinned, goes with its tokens") {
  const auto check = [](const char* name, const auto& policy, markup text, bool by_next) {
    CAPTURE(std::string(name));
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      CAPTURE(seed);
      dice random(seed);
      const tape says = with_spans(make_tape(model, kind::uniform, text, 230, 60, seed), seed);
      for (const token_range span : {token_range{17, 33}, token_range{41, 80}, token_range{0, 16},
                                     token_range{random.between(1, 60), random.between(61, 129)}}) {
        check_as_if_never(pinning(policy, seed, says), says, 130, span, by_next);
      }
    }
  };
  check("quest", small::quest, markup::sentences, false);
  check("full", small::full, markup::sentences, false);
  check("zoomr_one_pass", small::zoomr_one_pass, markup::pairs, true);
}

TEST_CASE("the token before a span may end the prompt, also where it has ended a segment") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const tape says = make_tape(model, kind::uniform, markup::pairs, 230, 60, seed);
    for (index_t first = 20; first < 45; ++first) {
      check_as_if_never(small::by_layer, says, 130, {first, 60}, true);
      check_as_if_never(small::by_layer, says, 130, {first, 71}, true);
    }
  }
}

TEST_CASE("sums of queries and what a rollback needs go with their tokens") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    const tape says = make_tape(model, kind::uniform, markup::sentences, 230, 70, seed);
    player<std::decay_t<decltype(small::sentence_kv)>> plays(model, small::sentence_kv, limits_for(230));
    plays.open(says);
    plays.play_plainly(0, 150);
    const zoomr::sequence seq = plays.at(0).seq;
    index_t id = plays.cache.segments(seq).size() - 1;  // whole sentences: the others end where they did
    if (seed % 2 == 0) --id;
    const index_t last = plays.cache.segments(seq)[id].end;
    while (last - plays.cache.segments(seq)[id].begin < (seed < 3 ? 1 : 9)) --id;
    const token_range span{plays.cache.segments(seq)[id].begin, last};
    CAPTURE(span.first);
    CAPTURE(span.last);
    if (last == 150) continue;
    const tape left = says.without(span);
    erase(plays, 0, span, left);
    player<std::decay_t<decltype(small::sentence_kv)>> never(model, small::sentence_kv, limits_for(230));
    never.open(left);
    const index_t tokens = 150 - span.size();
    never.play_plainly(0, tokens);
    for (const bool back : {false, true}) {
      const index_t deepest = std::max(150, tokens + 12) - 24;
      if (back && tokens <= deepest) break;
      for (auto* each : {&plays, &never}) {
        if (back) each->rollback(0, deepest);
        each->play_plainly(0, tokens + 12);
      }
      REQUIRE(difference(from(plays.at(0).log, tokens), from(never.at(0).log, tokens)) == "");
      for (auto* each : {&plays, &never}) each->rollback(0, tokens);
    }
  }
}

TEST_CASE("queries that an end of the prompt observes go with their tokens, also behind another end") {
  const auto check = [](const char* name, const auto& policy, token_range span, bool ended, std::uint64_t seed) {
    CAPTURE(std::string(name));
    CAPTURE(span.first);
    CAPTURE(seed);
    constexpr index_t until = 70, back = 1;  // here nothing is evicted yet
    const tape says = make_tape(model, kind::uniform, markup::sentences, 160, until, seed);
    tape left = says.without(span);
    left.prompt = until + 2;  // a few of the queries that are observed are those of new tokens
    player<std::decay_t<decltype(policy)>> plays(model, policy, limits_for(160)), never(model, policy, limits_for(160));
    plays.open(says);
    plays.play({{0, says.between(0, until), ended}});
    erase(plays, 0, span, left);
    plays.rollback(0, plays.tokens() - back);
    const index_t known = plays.tokens();
    never.open(left);
    never.play({{0, left.between(0, known), false}});
    for (auto* each : {&plays, &never}) each->play_plainly();
    REQUIRE(difference(from(plays.at(0).log, known), from(never.at(0).log, known)) == "");
  };
  const auto few = [](const auto& policy, index_t kept) {
    return with(policy, [&](auto& p) { p.evict.tokens = kept; });
  };
  for (const bool ended : {false, true}) {
    for (const token_range span : {token_range{3, 4}, {50, 51}, {65, 66}}) {
      for (const std::uint64_t seed : {1u, 2u, 3u}) {
        check("snapkv", few(small::snapkv, 70), span, ended, seed);
        check("sentence_kv", few(small::sentence_kv, 70), span, ended, seed);
        check("r_kv", few(small::r_kv, 70), span, ended, seed);
      }
    }
  }
}

TEST_CASE("behind two erased spans a rollback knows the queries that eviction observes next") {
  constexpr index_t prompt = 10;
  // Twice tokens could be evicted and none were, one earlier each time; the third time from the prompt's end there are
  // more than are kept, but the queries before it were forgotten.
  const tape says = make_tape(model, kind::uniform, markup::sentences, 120, prompt, 3);
  const token_range span{11, 12};
  const tape left = says.without(span).without(span);
  zoomr::config limits = limits_for(120);
  limits.rollback_tokens = 24;
  std::vector<result_log> logs;
  for (const index_t until : {34, 45}) {  // how long it once was is not seen
    player<std::decay_t<decltype(small::r_kv)>> plays(model, small::r_kv, limits);
    plays.open(says);
    plays.play_plainly(0, 23);
    plays.cache.erase(plays.at(0).seq, span);
    const tape once = says.without(span);
    plays.at(0).says = &once;
    plays.play_plainly(0, 35);
    if (until > 35) plays.play_plainly(0, until + 1);
    erase(plays, 0, span, left);
    plays.rollback(0, 33);
    plays.play_plainly();
    logs.push_back(plays.at(0).log);
  }
  CHECK(difference(from(logs[0], 33), from(logs[1], 33)) == "");
}

TEST_CASE("behind what each KV lane has evicted a span may go, before it none") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, 200, 70, 2);
  check_as_if_never(small::snapkv, says, 120, {80, 97}, false);
  check_as_if_never(small::snapkv, says, 60, {4, 40}, false);  // nothing is evicted yet
  player<std::decay_t<decltype(small::h2o)>> plays(model, small::h2o, limits_for(200));
  plays.open(says);
  plays.play_plainly(0, 122);
  const index_t end = zoomr::inspection::core(plays.cache).states[0].compacted_end;
  REQUIRE(end == 70 + 49);
  const state_digest before = digest_of(plays.cache, plays.at(0).seq);
  for (const token_range span : {token_range{end - 1, end + 1}, token_range{30, 40}}) {
    try {
      plays.cache.erase(plays.at(0).seq, span);
      FAIL("it is not all there");
    } catch (const zoomr::error& why) {
      CHECK(why.code() == zoomr::errc::not_held);
      CHECK(std::string_view(why.what()).find("before 119 each KV lane") != std::string_view::npos);
    }
  }
  CHECK(digest_of(plays.cache, plays.at(0).seq).difference(before) == "");
  const tape left = says.without({end, end + 2});
  erase(plays, 0, {end, end + 2}, left);
  plays.play_plainly();
}

TEST_CASE("what cannot be erased is said beforehand, and nothing changes") {
  const tape says = make_tape(model, kind::uniform, markup::pairs, 140, 60, 5);
  int refused = 0, possible = 0;
  for_each_preset([&](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    zoomr::config limits = limits_for(140, 2);
    limits.rollback_tokens = 12;
    player<std::decay_t<decltype(policy)>> plays(model, policy, limits);
    plays.open(says);
    plays.play_plainly(0, 125);
    const zoomr::sequence seq = plays.at(0).seq;
    bool lost = false;
    for (const token_range span : {token_range{0, 7}, token_range{0, 70}, token_range{16, 48}, token_range{50, 64},
                                   token_range{118, 122}, token_range{100, 125}, token_range{120, 125}}) {
      CAPTURE(span.first);
      for (const bool gap : {false, true}) {
        const zoomr::sequence copy = plays.cache.fork(seq);
        const state_digest before = digest_of(plays.cache, copy);
        const auto turn = [&](auto edit) {
          return gap ? edit(zoomr::position_gap{}) : edit(zoomr::detail::unturned{});
        };
        const std::string planned =
            turn([&](auto how) { return sentence_of([&] { plays.cache.plan_erase(copy, span, how); }); });
        CHECK(digest_of(plays.cache, copy).difference(before) == "");
        const std::string erased =
            turn([&](auto how) { return sentence_of([&] { plays.cache.erase(copy, span, how); }); });
        CHECK(planned == erased);
        ++(planned.empty() ? possible : refused);
        if (span.last < 125 && span != token_range{0, 70}) lost = lost || !planned.empty();
        plays.cache.close(copy);
      }
    }
    const bool keeps = std::is_same_v<std::remove_cvref_t<decltype(policy.evict)>, zoomr::keep_all>;
    CHECK(plays.cache.holds_all() == (keeps && !policy.placement.frees_unreachable));
    CHECK_FALSE((plays.cache.holds_all() && lost));
    CHECK(plays.cache.evicts_while_decoding() == evicts_later<std::decay_t<decltype(policy)>>);
    CHECK(sentence_of([&] {
            plays.cache.plan_erase(seq, {100, 126});
          }) == sentence_of([&] {
            plays.cache.erase(seq, {100, 126});
          }));
  });
  CHECK(refused > 20);
  CHECK(possible > 100);
}

TEST_CASE("freed pages are not reached again") {
  const tape says = make_tape(model, kind::uniform, markup::pairs, 240, 40, 4);
  player<std::decay_t<decltype(small::summary_only)>> plays(model, small::summary_only, limits_for(240));
  plays.open(says);
  plays.play_plainly(0, 200);
  const index_t freed = zoomr::inspection::core(plays.cache).states[0].freed_pages * zoomr::page_tokens;
  REQUIRE(freed > 0);
  CHECK_THROWS_AS(plays.cache.erase(plays.at(0).seq, {freed - 1, freed + 1}), zoomr::error);
  CHECK_THROWS_AS(plays.cache.erase(plays.at(0).seq, {freed, 199}), zoomr::error);  // more than rollback_tokens
  const tape left = says.without({190, 195});
  erase(plays, 0, {190, 195}, left);
  plays.play_plainly();
}

TEST_CASE("a segment that was closed is not open again where pages were freed") {
  // thought_begin at 16, thought_end at 35: the thought closes with the next token, and its first page goes
  tape says = make_tape(model, kind::uniform, markup::sentences, 120, 16, 4);
  const auto plain = says.ids[0];
  const tape marked = make_tape(model, kind::uniform, markup::pairs, 120, 16, 4);
  const auto id_of = [&](zoomr::token_class wanted) {
    const auto found = std::find_if(marked.ids.begin(), marked.ids.end(),
                                    [&](zoomr::token_id id) { return has(class_of(id), wanted); });
    REQUIRE(found != marked.ids.end());
    return *found;
  };
  std::fill(says.ids.begin(), says.ids.end(), plain);
  says.ids[16] = id_of(zoomr::token_class::thought_begin), says.ids[35] = id_of(zoomr::token_class::thought_end);
  constexpr auto policy = with(small::summary_only, [](auto& p) { p.segment.longest = 100; });
  player<std::decay_t<decltype(policy)>> plays(model, policy, limits_for(120));
  plays.open(says);
  plays.play_plainly(0, 66);
  const auto& state = zoomr::inspection::core(plays.cache).states[0];
  REQUIRE(state.pages[1] == -1);
  const state_digest before = digest_of(plays.cache, plays.at(0).seq);
  CHECK(sentence_of([&] {
          plays.cache.erase(plays.at(0).seq, {35, 37});
        }) ==
        "zoomr: erase: the tokens from 35 to 37 cannot go: of those before 32 pages were freed, and the segment that "
        "would be open then begins there");
  CHECK(digest_of(plays.cache, plays.at(0).seq).difference(before) == "");
  const tape left = says.without({37, 41});
  erase(plays, 0, {37, 41}, left);
  plays.play_plainly();
}

TEST_CASE("a window does not move back to freed pages when a part of the prompt is erased") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, 200, 150, 4);
  player<std::decay_t<decltype(small::window)>> plays(model, small::window, limits_for(200));
  plays.open(says);
  plays.play_plainly(0, 152);
  REQUIRE(zoomr::inspection::core(plays.cache).states[0].freed_pages > 0);
  const auto expect_refused = [&](token_range span) {
    try {
      plays.cache.erase(plays.at(0).seq, span);
      FAIL("it was erased");
    } catch (const zoomr::error& why) {
      CHECK(why.code() == zoomr::errc::not_held);
    }
  };
  expect_refused({145, 149});  // fewer tokens than the prompt had: pages were freed since none fewer would come
  plays.play_plainly(0, 160);
  const tape left = says.without({145, 149});
  erase(plays, 0, {145, 149}, left);
  expect_refused({146, 153});  // so would these be, although the prompt is shorter now
  plays.play_plainly();
}

/// 220 tokens of a text of thoughts, of which some are chosen.
struct with_thoughts {
  tape says = make_tape(model, kind::uniform, markup::pairs, 260, 60, 9);
  player<std::decay_t<decltype(small::by_layer)>> plays{model, small::by_layer, limits_for(260)};

  with_thoughts() {
    plays.open(says);
    plays.play_plainly(0, 220);
  }
};

TEST_CASE("what was chosen is chosen still") {
  with_thoughts thoughts;
  const tape& says = thoughts.says;
  auto& plays = thoughts.plays;
  const zoomr::sequence seq = plays.at(0).seq;
  const auto levels = [&](index_t row) {
    const auto& chosen = plays.cache.selected(seq, row);
    std::vector<zoomr::level> made;
    for (index_t id = 0; id < plays.cache.segments(seq).size(); ++id) made.push_back(chosen.level_at(id));
    return made;
  };
  std::vector<std::vector<zoomr::level>> before;
  for (index_t row = 0; row < plays.cache.selection_rows(); ++row) before.push_back(levels(row));
  index_t gone = 4;  // a thought of which nothing is left
  while (before[0][static_cast<std::size_t>(gone)] != zoomr::level::details) ++gone;
  const zoomr::segment thought = plays.cache.segments(seq)[gone];
  const tape left = says.without({thought.begin, thought.end});
  const index_t choice = zoomr::inspection::core(plays.cache).states[0].log.last_position();
  erase(plays, 0, {thought.begin, thought.end}, left);
  for (index_t row = 0; row < plays.cache.selection_rows(); ++row) {
    std::vector<zoomr::level> wanted = before[static_cast<std::size_t>(row)];
    wanted.erase(wanted.begin() + gone);
    CHECK(levels(row) == wanted);
  }
  // It can be rolled back behind the choice, and no further.
  const auto& log = zoomr::inspection::core(plays.cache).states[0].log;
  CHECK(log.last_position() == choice - (thought.end - thought.begin));
  plays.rollback(0, log.last_position() + 1);
  const std::vector<zoomr::level> rolled = levels(0);
  CHECK(std::count(rolled.begin(), rolled.end(), zoomr::level::details) > 0);
  CHECK_THROWS_AS(plays.rollback(0, log.last_position()), zoomr::error);
}

TEST_CASE("of a thought the summary may be left") {
  with_thoughts thoughts;
  const tape& says = thoughts.says;
  auto& plays = thoughts.plays;
  const zoomr::sequence seq = plays.at(0).seq;
  const auto segments = plays.cache.segments(seq);
  index_t id = segments.size() - 2;
  while (segments[id].split == segments[id].end || segments[id - 1].end != segments[id].begin) --id;
  const zoomr::segment thought = segments[id];
  const index_t count = segments.size();
  const tape left = says.without({thought.begin, thought.split});
  erase(plays, 0, {thought.begin, thought.split}, left);
  const zoomr::segment summary = plays.cache.segments(seq)[id];
  CHECK(plays.cache.segments(seq).size() == count);
  CHECK(summary.begin == thought.begin);
  CHECK(summary.split == summary.begin);
  CHECK(summary.end - summary.split == thought.end - thought.split);
  plays.play_plainly();
}

TEST_CASE("a span that ends the sequence is a rollback, an empty one is nothing") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, 140, 50, 6);
  player<std::decay_t<decltype(small::sentence_kv)>> plays(model, small::sentence_kv, limits_for(140));
  plays.open(says);
  plays.play_plainly(0, 90);
  const zoomr::sequence seq = plays.at(0).seq;
  const state_digest before = digest_of(plays.cache, seq);
  plays.cache.erase(seq, {70, 70});
  CHECK(digest_of(plays.cache, seq).difference(before) == "");
  player<std::decay_t<decltype(small::sentence_kv)>> other(model, small::sentence_kv, limits_for(140));
  other.open(says);
  for (auto* each : {&plays, &other}) each->play_plainly(0, 100);
  plays.cache.erase(seq, {90, 100});
  other.rollback(0, 90);
  CHECK(digest_of(plays.cache, seq).difference(digest_of(other.cache, other.at(0).seq)) == "");
  for (const token_range span : {token_range{-1, 3}, token_range{4, 3}, token_range{80, 91}}) {
    CHECK_THROWS_AS(plays.cache.erase(seq, span), zoomr::precondition_error);
  }
  player<std::decay_t<decltype(small::full)>> whole(model, small::full, limits_for(140));
  whole.open(says);
  whole.play_plainly(0, 60);
  CHECK_THROWS_AS(whole.cache.erase(whole.at(0).seq, {0, 50}), zoomr::precondition_error);
  const std::vector<token_id> ids = says.between(60, 61);
  const auto step = whole.cache.begin(whole.at(0).seq, view<const token_id>(ids));
  CHECK_THROWS_AS(whole.cache.erase(whole.at(0).seq, {3, 5}), zoomr::precondition_error);
}

TEST_CASE("forks keep what one of them erases, and without pages nothing changes") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, 96, 40, 5);
  const token_range span{20, 29};  // of 71 tokens that are left, in five pages, all but the first page change
  const tape left = says.without(span);
  zoomr::config limits = limits_for(96, 2);
  for (const index_t spare : {3, 4}) {
    CAPTURE(spare);
    limits.pool_tokens = (5 + spare) * zoomr::page_tokens;
    player<std::decay_t<decltype(small::quest)>> plays(model, small::quest, limits);
    plays.open(says);
    plays.play_plainly(0, 80);
    plays.voices.push_back({plays.cache.fork(plays.at(0).seq), &says, {}});
    const state_digest before = digest_of(plays.cache, plays.at(0).seq);
    if (spare < 4) {
      CHECK_THROWS_AS(plays.cache.erase(plays.at(1).seq, span), zoomr::error);
      CHECK(digest_of(plays.cache, plays.at(1).seq).difference(before) == "");
    } else {
      erase(plays, 1, span, left);
      CHECK(zoomr::inspection::core(plays.cache).pool.free_pages() == 0);
    }
    CHECK(digest_of(plays.cache, plays.at(0).seq).difference(before) == (spare < 4 ? "" : "free pages"));
  }
}

/// Each transfer fails in turn.
template <class Policy>
void check_failing_transfers(const char* name, const Policy& policy) {
  CAPTURE(std::string(name));
  const auto moved = with_placement(policy, zoomr::tiered<zoomr::lru, unit::scripted_transfers>{});
  using policy_type = std::remove_const_t<decltype(moved)>;
  const tape says = make_tape(model, kind::uniform, markup::sentences, 160, 37, 8);
  const token_range span{45, 66};
  const tape left = says.without(span);
  zoomr::config limits = limits_for(160, 2);
  limits.pool_tokens = 320;
  limits = tiered_limits(model, moved, limits, 6);
  unit::script() = {};
  player<policy_type> plays(model, moved, limits);
  plays.cache.trace(nullptr);
  plays.open(says);
  plays.play_plainly(0, 110);
  plays.voices.push_back({plays.cache.fork(plays.at(0).seq), &says, {}});
  const state_digest before = digest_of(plays.cache, plays.at(0).seq);
  index_t failures = 0;
  for (bool failed = true; failed;) {
    unit::script().fails = unit::script().made + failures;
    failed = false;
    try {
      plays.cache.erase(plays.at(0).seq, span);
    } catch (const zoomr::error& why) {
      REQUIRE(why.code() == zoomr::errc::storage);
      failed = true;
      ++failures;
    }
    unit::script().fails = -1;
    if (failed) REQUIRE(digest_of(plays.cache, plays.at(0).seq).difference(before) == "");
  }
  CHECK(failures > 0);
  plays.at(0).says = &left;
  plays.at(0).log.clear();
  plays.play_plainly(0);
  player<std::decay_t<Policy>> never(model, policy, limits_for(160));
  never.cache.trace(nullptr);
  never.open(left);
  never.play_plainly();
  CHECK(difference(from(plays.at(0).log, 110 - span.size()), from(never.at(0).log, 110 - span.size())) == "");
}

TEST_CASE("over tiers a page that does not come changes nothing") {
  check_failing_transfers("full", small::full);
  check_failing_transfers("quest", small::quest);
}

TEST_CASE("keys are turned to the positions that they have now") {
  constexpr index_t dims = 16, tokens = 40;
  constexpr shape one{1, 1, 1, dims};
  for (const zoomr::rotary_pairs which : {zoomr::rotary_pairs::halves, zoomr::rotary_pairs::adjacent}) {
    for (const index_t pairs : {8, 3}) {
      std::vector<float> frequencies;
      for (index_t i = 0; i < pairs; ++i)
        frequencies.push_back(static_cast<float>(std::pow(100.0, -double(i) / pairs)));
      const view<const float> each(frequencies);
      std::vector<float> plain(static_cast<std::size_t>(tokens * dims));
      const tensors numbers{one, kind::uniform, 3};
      const auto turned = [&](index_t token, index_t position) {
        std::vector<float> key(dims);
        numbers.fill(role::key, 7, token, 0, 0, 0, key.data());
        // By complex numbers, as the models' own code says it.
        for (index_t i = 0; i < pairs; ++i) {
          const auto a = static_cast<std::size_t>(which == zoomr::rotary_pairs::halves ? i : 2 * i);
          const auto b = static_cast<std::size_t>(which == zoomr::rotary_pairs::halves ? i + pairs : 2 * i + 1);
          const double angle = position * double(frequencies[static_cast<std::size_t>(i)]);
          const double x = key[a], y = key[b];
          key[a] = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
          key[b] = static_cast<float>(x * std::sin(angle) + y * std::cos(angle));
        }
        return key;
      };
      zoomr::config limits = limits_for(tokens);
      zoomr::kv_cache cache(one, small::full, limits);
      const zoomr::sequence seq = cache.open();
      const std::vector<token_id> ids(tokens, 7);
      {
        auto step = cache.begin(seq, view<const token_id>(ids), true);
        std::vector<float> keys;
        for (index_t t = 0; t < tokens; ++t) {
          const std::vector<float> key = turned(t, t);
          keys.insert(keys.end(), key.begin(), key.end());
        }
        const view<const float, 3> k(keys.data(), {tokens, 1, dims});
        step.append(0, k, k);
        step.observe(0, k);
        step.commit();
      }
      const token_range span{5, 18};
      cache.erase(seq, span, zoomr::key_rotation(each, -span.size(), which));
      const auto lane = cache.kv_lane(seq, 0, 0);
      REQUIRE(cache.tokens(seq) == tokens - span.size());
      for (index_t t = 0; t < cache.tokens(seq); ++t) {
        const index_t token = t < span.first ? t : t + span.size();
        const std::vector<float> wanted = turned(token, t), value = turned(token, token);
        for (index_t d = 0; d < dims; ++d) {
          // Two roundings of the rotation, each of two products.
          CHECK(lane.key(t)[d] == doctest::Approx(wanted[static_cast<std::size_t>(d)]).epsilon(1e-5));
          CHECK(lane.value(t)[d] == value[static_cast<std::size_t>(d)]);
        }
      }
    }
  }
  CHECK_THROWS_AS(zoomr::key_rotation({}, 3), zoomr::precondition_error);
}

}  // namespace
}  // namespace zoomr_test

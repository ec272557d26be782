// SPDX-License-Identifier: Apache-2.0
// Forks: what they are, whose pages they share, and what a step that writes there copies.
#include <cache/support/players.hpp>
#include <cache/support/tiered_limits.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>
#include <paging/engines.hpp>
#include <support/state_digest.hpp>

#include <string_view>  // std::string_view

namespace zoomr_test {
namespace {

constexpr shape model{2, 4, 2, 8};

template <class Player>
index_t free_pages(Player& plays) {
  return zoomr::inspection::core(plays.cache).pool.free_pages();
}

TEST_CASE("a fork is what it was made of, and each goes on as if it were alone") {
  for_each_policy([](const char* name, const auto& policy) {
    using player_type = player<std::decay_t<decltype(policy)>>;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      dice random(seed);
      const index_t prompt = random.between(30, 70);
      const tape says = make_tape(model, kind::uniform, markup::pairs, prompt + 90, prompt, seed);
      const index_t at = seed == 1 ? prompt - 7 : seed == 2 ? prompt : prompt + random.between(1, 60);
      const tape others = with_other_end(says, at, prompt, seed + 50);
      player_type plays(model, policy, limits_for(says.size(), 2));
      plays.open(says);
      if (at < prompt) {
        plays.play({{0, says.between(0, at), false}});
      } else {
        plays.play_plainly(0, at);
      }
      const state_digest before = digest_of(plays.cache, plays.at(0).seq);
      const index_t made = fork(plays, 0, others);
      REQUIRE(digest_of(plays.cache, plays.at(made).seq).difference(before) == "");
      REQUIRE(digest_of(plays.cache, plays.at(0).seq).difference(before) == "");
      for (index_t v = 0; !plays.done(0) || !plays.done(made); v = 1 - v) {  // in turn, so that either writes first
        if (plays.done(v)) continue;
        if (plays.tokens(v) < prompt) plays.play({{v, plays.at(v).says->between(plays.tokens(v), prompt), true}});
        plays.play({plays.next(v, random.between(1, 4))});
      }
      for (const index_t v : {index_t{0}, made}) {
        CAPTURE(v);
        player_type alone(model, policy, limits_for(says.size()));
        alone.open(*plays.at(v).says);
        alone.play_plainly();
        REQUIRE(difference(alone.at(0).log, plays.at(v).log) == "");
      }
    }
  });
}

TEST_CASE("a fork may take the place of a sequence that is open, whose handle stays") {
  for_each_policy([](const char* name, const auto& policy) {
    using player_type = player<std::decay_t<decltype(policy)>>;
    CAPTURE(std::string(name));
    const tape says = make_tape(model, kind::uniform, markup::pairs, 130, 40, 7);
    const tape before = make_tape(model, kind::uniform, markup::sentences, 130, 60, 8);
    player_type plays(model, policy, limits_for(says.size(), 2)), alone(model, policy, limits_for(says.size()));
    const index_t free = free_pages(plays);
    plays.open(says), plays.open(before), alone.open(says);
    plays.play_plainly(0, 90), plays.play_plainly(1, 110), alone.play_plainly();
    const zoomr::sequence from = plays.at(0).seq, into = plays.at(1).seq;
    plays.cache.fork(from, into), plays.cache.fork(into, into);
    plays.at(1).says = &says, plays.at(1).log = plays.at(0).log;
    REQUIRE(digest_of(plays.cache, into).difference(digest_of(plays.cache, from)) == "");
    plays.play_plainly(1), plays.play_plainly(0);
    for (const index_t v : {0, 1}) REQUIRE(difference(alone.at(0).log, plays.at(v).log) == "");
    plays.cache.close(into), plays.cache.close(from);
    CHECK(free_pages(plays) == free);
    CHECK(sentence_of([&] { plays.cache.fork(from, into); }) ==
          "zoomr: sequence 0 is not open: it was closed, and another may have its id since");
  });
}

TEST_CASE("a fork that is made after the prompt's end has what another end of the prompt observes") {
  const auto check = [](const char* name, const auto& policy, index_t ends_first) {
    CAPTURE(std::string(name));
    using player_type = player<std::decay_t<decltype(policy)>>;
    constexpr index_t prompt = 80;  // of which tokens are evicted; at `ends_first` none are
    const tape says = make_tape(model, kind::uniform, markup::sentences, prompt + 60, prompt, 5);
    player_type plays(model, policy, limits_for(says.size(), 2));
    const tape others = make_tape(model, kind::uniform, markup::sentences, prompt + 60, prompt, 6);
    for (const index_t v : {0, 1}) plays.open(others), plays.play_plainly(v, prompt);  // whose memory is used again
    for (const voice& each : plays.voices) plays.cache.close(each.seq);
    plays.voices.clear();
    plays.open(says);
    plays.play({{0, says.between(0, ends_first), true}});
    const index_t made = fork(plays, 0, says);
    for (const index_t v : {index_t{0}, made}) {
      CAPTURE(v);
      plays.rollback(v, ends_first - 1);
      for (index_t now = ends_first - 1; now < prompt; now = plays.tokens(v)) {
        const index_t last = std::min(now + (now < ends_first ? 1 : 60), prompt);  // the last chunk is short
        plays.play({{v, says.between(now, last), last == prompt}});
      }
      plays.play_plainly(v);
      player_type alone(model, policy, limits_for(says.size()));
      alone.open(says);
      alone.play_plainly();
      REQUIRE(difference(alone.at(0).log, plays.at(v).log) == "");
    }
  };
  const auto few = [](const auto& policy, index_t kept) {
    return with(policy, [&](auto& p) { p.evict.tokens = kept; });
  };
  check("snapkv", few(small::snapkv, 78), 76);
  check("sentence_kv", few(small::sentence_kv, 78), 76);
  check("r_kv", few(small::r_kv, 78), 77);
}

TEST_CASE("a prefix that is held once serves many sequences") {
  const tape prefix = make_tape(model, kind::uniform, markup::sentences, 200, 200, 3);
  const index_t shared = 70;  // 4 full pages, and 6 tokens in a fifth
  constexpr index_t ends = 3;
  player<std::decay_t<decltype(small::sentence_box)>> plays(model, small::sentence_box, limits_for(200, ends + 1));
  plays.open(prefix);
  plays.play({{0, prefix.between(0, shared), false}});
  const index_t pages = zoomr::inspection::core(plays.cache).pool.pages();
  CHECK(free_pages(plays) == pages - 5);
  std::vector<tape> all;
  for (index_t e = 0; e < ends; ++e)
    all.push_back(with_other_end(prefix, shared, 80 + 7 * e, 90 + static_cast<std::uint64_t>(e)));
  for (const tape& says : all) fork(plays, 0, says);
  CHECK(free_pages(plays) == pages - 5);  // tables alone were copied
  for (index_t e = 0; e < ends; ++e) {
    const tape& says = all[static_cast<std::size_t>(e)];
    plays.play({{e + 1, says.between(shared, says.prompt), true}});
    CHECK(plays.cache.bytes(plays.at(e + 1).seq).details ==
          zoomr::pages_for(says.prompt) * zoomr::page_pool<float>::page_bytes(model));
  }
  // 80, 87 and 94 tokens: each the fifth page of its own, the last two a sixth
  CHECK(free_pages(plays) == pages - 5 - 1 - 2 - 2);
  for (index_t e = 0; e < ends; ++e) {
    plays.play_plainly(e + 1, 120);
    player<std::decay_t<decltype(small::sentence_box)>> alone(model, small::sentence_box, limits_for(200));
    alone.open(all[static_cast<std::size_t>(e)]);
    alone.play_plainly(0, 120);
    CHECK(difference(alone.at(0).log, plays.at(e + 1).log) == "");
  }
  plays.cache.close(plays.at(0).seq);  // those that share its pages keep them
  plays.play_plainly(1, 130);
  for (index_t e = 0; e < ends; ++e) plays.cache.close(plays.at(e + 1).seq);
  CHECK(free_pages(plays) == pages);
}

TEST_CASE("what a step would copy counts against the pool, and a full pool changes nothing") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, 64, 20, 5);
  zoomr::config limits = limits_for(64, 3);
  for (const index_t pages : {2, 3, 4}) {
    CAPTURE(pages);
    limits.pool_tokens = pages * zoomr::page_tokens;
    player<std::decay_t<decltype(small::full)>> plays(model, small::full, limits);
    plays.open(says);
    plays.play_plainly(0, 22);  // two pages
    fork(plays, 0, says), fork(plays, 0, says);
    const state_digest before = digest_of(plays.cache, plays.at(1).seq);
    std::vector<part> both = {plays.next(0, 1), plays.next(1, 1)};  // a page each: the third sequence keeps the old one
    if (pages < 4) {
      try {
        plays.play(both);
        FAIL("two pages were needed");
      } catch (const zoomr::error& why) {
        CHECK(why.code() == zoomr::errc::capacity);
        CHECK(std::string_view(why.what()).find("the step needs 2 pages") != std::string_view::npos);
      }
      REQUIRE(digest_of(plays.cache, plays.at(1).seq).difference(before) == "");
      plays.cache.close(plays.at(2).seq);
    }
    if (pages == 2) {  // even one page is too many while both hold the old one
      CHECK_THROWS_AS(plays.play(both), zoomr::error);
      plays.cache.close(plays.at(0).seq);
      both.erase(both.begin());
    }
    plays.play(both);  // of two that share a page the second one writes there
    CHECK(free_pages(plays) == (pages == 4 ? 0 : pages - (pages == 2 ? 2 : 3)));
  }
}

TEST_CASE("there are as many sequences as the config says, and nothing is forked in a step") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, 64, 20, 5);
  player<std::decay_t<decltype(small::quest)>> plays(model, small::quest, limits_for(64, 2));
  plays.open(says);
  plays.play_plainly(0, 22);
  {
    const std::vector<token_id> ids = says.between(22, 23);
    const auto step = plays.cache.begin(plays.at(0).seq, view<const token_id>(ids));
    CHECK_THROWS_AS(plays.cache.fork(plays.at(0).seq), zoomr::precondition_error);
  }
  const zoomr::sequence other = plays.cache.fork(plays.at(0).seq);
  const state_digest before = digest_of(plays.cache, plays.at(0).seq);
  CHECK_THROWS_AS(plays.cache.fork(other), zoomr::error);
  CHECK(digest_of(plays.cache, plays.at(0).seq).difference(before) == "");
  plays.cache.close(other);
  CHECK_THROWS_AS(plays.cache.fork(other), zoomr::precondition_error);
}

/// Each transfer of a copy fails in turn.
template <class Policy>
void check_failing_copies(const char* name, const Policy& policy) {
  CAPTURE(std::string(name));
  const auto moved = with_placement(policy, zoomr::tiered<zoomr::lru, unit::scripted_transfers>{});
  using policy_type = std::remove_const_t<decltype(moved)>;
  const tape says = make_tape(model, kind::uniform, markup::sentences, 120, 37, 8);
  const zoomr::config limits = tiered_limits(model, moved, limits_for(120, 2), 6);
  unit::script() = {};
  player<policy_type> plays(model, moved, limits);
  plays.cache.trace(nullptr);
  plays.open(says);
  plays.play_plainly(0, 86);
  const index_t made = fork(plays, 0, says);
  const state_digest before = digest_of(plays.cache, plays.at(made).seq);
  const std::vector<token_id> ids = says.between(86, 87);
  index_t failures = 0;
  for (bool failed = true; failed;) {
    unit::script().fails = unit::script().made + failures;
    failed = false;
    try {
      static_cast<void>(plays.cache.begin(plays.at(made).seq, view<const token_id>(ids)));  // dropped
    } catch (const zoomr::error& why) {
      REQUIRE(why.code() == zoomr::errc::storage);
      CHECK(std::string_view(why.what()).find("a page that it shares") != std::string_view::npos);
      failed = true;
      ++failures;
    }
    unit::script().fails = -1;
    if (failed) REQUIRE(digest_of(plays.cache, plays.at(made).seq).difference(before) == "");
  }
  CHECK(failures > 0);
  plays.play_plainly(made);
  plays.play_plainly(0);
  CHECK(plays.at(0).log == plays.at(made).log);
}

TEST_CASE("a page over tiers that cannot be copied changes nothing") {
  check_failing_copies("full", small::full);
  check_failing_copies("quest", small::quest);
  check_failing_copies("h2o", small::h2o);
}

/// Bytes that a sequence of 120 tokens has written to the file, where a transfer for a fork's copy may have failed
/// before, and the fork was closed.
/// @param failing  which one; -1: there was no fork
/// @param lost     counts the copies that have failed
zoomr::byte_count written_after_lost_copy(index_t failing, index_t& lost) {
  const auto moved = with_placement(small::quest, zoomr::tiered<zoomr::cyclic_mru, unit::scripted_transfers>{});
  using policy_type = std::remove_const_t<decltype(moved)>;
  const tape says = make_tape(model, kind::uniform, markup::sentences, 120, 37, 8);
  unit::script() = {};
  player<policy_type> plays(model, moved, tiered_limits(model, moved, limits_for(120, 2), 6));
  plays.cache.trace(nullptr);
  plays.open(says);
  plays.play_plainly(0, 86);
  if (failing >= 0) {
    const zoomr::sequence copy = plays.cache.fork(plays.at(0).seq);
    unit::script().fails = unit::script().made + failing;
    const std::vector<token_id> ids = says.between(86, 87);
    try {
      static_cast<void>(plays.cache.begin(copy, view<const token_id>(ids)));  // dropped
    } catch (const zoomr::error&) {
      ++lost;
    }
    unit::script().fails = -1;
    plays.cache.close(copy);
  }
  plays.play_plainly(0);
  return plays.cache.tiers().bytes_out;
}

TEST_CASE("what was copied of a page before the rest did not come is never written") {
  index_t lost = 0;
  const zoomr::byte_count without = written_after_lost_copy(-1, lost);
  for (index_t failing = 0; failing < 6; ++failing) {
    CAPTURE(failing);
    CHECK(written_after_lost_copy(failing, lost) == without);
  }
  CHECK(lost > 1);
}

}  // namespace
}  // namespace zoomr_test

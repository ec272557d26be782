// SPDX-License-Identifier: Apache-2.0
// However a text is cut into steps, and whatever is tried and dropped or rolled back on the way, each committed token
// attends the same positions and gets the same bits.
#include <cache/support/players.hpp>

#include <doctest/doctest.h>

#include <cstdlib>

namespace zoomr_test {
namespace {

constexpr index_t tokens = 400;
// Twenty, or fewer where the environment says so: under sanitizers, which look for something else.
const std::uint64_t seeds =
    std::getenv("ZOOMR_SEEDS") != nullptr ? std::strtoull(std::getenv("ZOOMR_SEEDS"), nullptr, 10) : 20;
const std::uint64_t few_seeds = (seeds + 4) / 5;
constexpr shape model{2, 4, 2, 8};

tape tape_of(std::uint64_t seed, const shape& of = model) {
  constexpr kind looks[] = {kind::uniform, kind::peaked, kind::ties};
  constexpr markup texts[] = {markup::pairs, markup::summaries_alone, markup::stray, markup::sentences};
  return make_tape(of, looks[seed % 3], texts[seed % 4], tokens, static_cast<index_t>(60 + seed * 7 % 40), seed);
}

/// Some ids of which a prefix, perhaps empty, is what the tape says next.
part draft_of(const tape& says, index_t position, dice& random) {
  part made{0, says.between(position, position + random.between(2, 6)), false};
  const auto wrong_from = static_cast<std::size_t>(random.between(0, static_cast<index_t>(made.ids.size())));
  for (std::size_t i = wrong_from; i < made.ids.size(); ++i) made.ids[i] = random.between(1, 30);
  return made;
}

/// The prompt in chunks.
template <class Player>
void play_prompt(Player& plays, dice& random) {
  const tape& says = *plays.at(0).says;
  while (plays.tokens() < says.prompt) {
    const index_t left = says.prompt - plays.tokens();
    const index_t count = random.chance(15) ? left : random.between(1, left);
    plays.play({{0, says.between(plays.tokens(), plays.tokens() + count), count == left}});
  }
}

/// What the drivers have come across, so that a test can say that they did.
struct adventures {
  index_t longest_accepted = 0;
  index_t into_prompt = 0;
  index_t refused = 0;
  std::int64_t second_passes = 0;
  std::int64_t unsure = 0, sure = 0;  // choices of texts with a bound
};

template <class Player>
void in_chunks_and_backwards(Player& plays, dice& random, adventures&) {
  plays.layers_backwards = true;
  play_prompt(plays, random);
  plays.play_plainly();
}

template <class Player>
void token_by_token(Player& plays, dice&, adventures&) {
  const tape& says = *plays.at(0).says;
  for (index_t now = 0; now < says.prompt; ++now) plays.play({{0, says.between(now, now + 1), now + 1 == says.prompt}});
  plays.play_plainly();
}

template <class Player>
void with_drafts(Player& plays, dice& random, adventures& met) {
  play_prompt(plays, random);
  while (!plays.done()) {
    const index_t accepted = plays.play({draft_of(*plays.at(0).says, plays.tokens(), random)})[0];
    met.longest_accepted = std::max(met.longest_accepted, accepted);
    if (accepted == 0) plays.play({plays.next(0, 1)});
  }
}

/// Drafts, detours of wrong tokens that are committed and rolled back, and right tokens that are rolled back and come
/// again.
template <class Player>
void with_rollbacks(Player& plays, dice& random, adventures& met) {
  const tape& says = *plays.at(0).says;
  const index_t undo = limits_for(tokens).rollback_tokens;
  index_t longest = 0;  // tokens that were ever committed
  while (!plays.done()) {
    if (plays.tokens() < says.prompt) play_prompt(plays, random);
    longest = std::max(longest, plays.tokens());
    index_t to = plays.tokens();
    if (random.chance(12)) {
      index_t room = std::min<index_t>({random.between(1, 9), tokens + 8 - to, undo});
      while (least_rollback(plays.cache.policy(), says.prompt, to + room) > to) --room;  // or there were no way back
      for (index_t count = 0; count < room; ++count) plays.play({{0, {random.between(1, 30)}, false, true}});
    } else if (!random.chance(12)) {
      if (plays.play({draft_of(says, to, random)})[0] == 0) plays.play({plays.next(0, 1)});
      continue;
    }
    longest = std::max(longest, plays.tokens());
    const index_t guaranteed = std::max(longest - undo, 0);  // rollback_tokens counts from the longest that it was
    to = std::min(to, random.between(guaranteed, plays.tokens()));
    try {
      plays.rollback(0, to);
      met.into_prompt += to < says.prompt ? 1 : 0;
    } catch (const zoomr::error& refusal) {
      REQUIRE(refusal.code() == zoomr::errc::rollback_depth);
      const index_t least = std::max(says.prompt, least_rollback(plays.cache.policy(), says.prompt, plays.tokens()));
      REQUIRE(to < least);  // only what has been evicted
      ++met.refused;
      plays.rollback(0, std::max(to, least));
    }
  }
}

/// Steps with right and wrong tokens that are dropped at any point.
template <class Player>
void with_dropped_steps(Player& plays, dice& random, adventures& met) {
  constexpr fate fates[] = {fate::dropped_at_once, fate::dropped_between_layers, fate::dropped_after_pass,
                            fate::dropped_after_first_pass, fate::committed};
  const tape& says = *plays.at(0).says;
  while (plays.tokens() < says.prompt) {
    plays.play({{0, says.between(plays.tokens(), says.prompt), true}}, random.one_of(fates));
    if (plays.tokens() > 0) break;
    plays.play({{0, says.between(0, random.between(1, 30)), false}}, fate::dropped_after_pass);
  }
  while (!plays.done()) {
    part tried = random.chance(50) ? draft_of(says, plays.tokens(), random) : plays.next(0, 1);
    tried.accept_all = random.chance(30);
    const fate end = random.one_of(fates);
    const zoomr::memory_use before = plays.cache.bytes(plays.at(0).seq);
    if (end == fate::committed) tried = plays.next(0, random.between(1, 4));
    plays.play({tried}, end);
    if (end != fate::committed) REQUIRE(plays.cache.bytes(plays.at(0).seq) == before);
  }
  met.second_passes += plays.second_passes;
}

/// All drivers against a text that is said plainly.
template <class T = float, class Policy>
adventures check_drivers(const char* name, const Policy& policy, const shape& of, std::uint64_t rounds) {
  using player_type = player<Policy, T>;
  adventures met;
  for (std::uint64_t seed = 1; seed <= rounds; ++seed) {
    const tape says = tape_of(seed, of);
    zoomr::config limits = limits_for(tokens + 8);
    if (seed % 2 == 0) limits.voters_unsure = seed % 3 == 1 ? 0.6f : 5.0f;  // of peaked numbers, or of others
    player_type plain(of, policy, limits);
    plain.open(says);
    plain.play_plainly();
    const zoomr::statistics counted = plain.cache.stats(plain.at(0).seq);
    met.unsure += counted.unsure, met.sure += seed % 2 == 0 ? counted.refreshes - counted.unsure : 0;
    const auto check = [&](const char* driver, auto drive) {
      player_type driven(of, policy, limits);
      driven.open(says);
      dice random(seed * 7919);
      drive(driven, random, met);
      CAPTURE(std::string(name));
      CAPTURE(std::string(driver));
      CAPTURE(seed);
      REQUIRE(difference(plain.at(0).log, driven.at(0).log) == "");
      const auto a = plain.cache.segments(plain.at(0).seq);
      const auto b = driven.cache.segments(driven.at(0).seq);
      CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
    };
    check("chunks", [](auto&... with) { in_chunks_and_backwards(with...); });
    check("token by token", [](auto&... with) { token_by_token(with...); });
    check("drafts", [](auto&... with) { with_drafts(with...); });
    check("rollbacks", [](auto&... with) { with_rollbacks(with...); });
    check("dropped steps", [](auto&... with) { with_dropped_steps(with...); });
  }
  return met;
}

TEST_CASE("chunks, drafts, rollbacks and dropped steps change no bit of what committed tokens attend and get") {
  for_each_policy([](const char* name, const auto& policy) {
    const adventures met = check_drivers(name, policy, model, seeds);
    const bool evicts_prompt = decltype(policy.evict)::observes || policy.placement.frees_unreachable;
    // Where each token chooses for those behind it, drafts are one token long.
    const bool for_all =
        policy.selects && policy.refresh.each_token() && policy.aggregate.per == zoomr::scope::sequence;
    CHECK((met.longest_accepted > 2) == !for_all);
    CHECK((evicts_prompt ? met.refused : met.into_prompt) > 0);
    if (!evicts_prompt) CHECK(met.refused == 0);
    CHECK((met.second_passes > 0) == policy.refresh.second_pass);
    constexpr bool gated = zoomr::gated_aggregator<decltype(policy.aggregate)>;
    CHECK((gated || met.unsure == 0));
    if (gated && seeds > 3) CHECK((met.unsure > 0 && met.sure > 0));
  });
}

TEST_CASE("nor do they where values are multiplied in pairs") {
  const shape wide{2, 4, 2, 16};
  check_drivers<zoomr::bfloat16>("full", small::full, wide, few_seeds);
  check_drivers<zoomr::bfloat16>("zoomr_focus", small::zoomr_focus, wide, few_seeds);
  check_drivers<zoomr::bfloat16>("sentence_kv", small::sentence_kv, wide, few_seeds);
}

TEST_CASE("nor do they where rows have scales of their own") {
  const shape wide{2, 4, 2, 16};
  check_drivers<zoomr::scaled_int8>("full", small::full, wide, few_seeds);
  check_drivers<zoomr::scaled_int8>("zoomr_focus", small::zoomr_focus, wide, few_seeds);
  check_drivers<zoomr::scaled_int8>("sentence_kv", small::sentence_kv, wide, few_seeds);
}

TEST_CASE("a prompt whose queries are only observed gives the same sequence as one that the cache attends") {
  for_each_policy([](const char* name, const auto& policy) {
    for (std::uint64_t seed = 1; seed <= few_seeds; ++seed) {
      const tape says = tape_of(seed);
      player<std::decay_t<decltype(policy)>> plain(model, policy, limits_for(tokens));
      plain.open(says);
      plain.play_plainly(0, 200);
      player<std::decay_t<decltype(policy)>> observed(model, policy, limits_for(tokens));
      observed.open(says);
      observed.observe_prompts = true;
      observed.play_plainly(0, 200);
      auto& log = plain.at(0).log;
      log.erase(log.begin(), log.lower_bound({says.prompt, 0}));
      auto& other = observed.at(0).log;
      other.erase(other.begin(), other.lower_bound({says.prompt, 0}));
      CAPTURE(std::string(name));
      CAPTURE(seed);
      REQUIRE(log.size() >= 200u - static_cast<std::size_t>(says.prompt));
      REQUIRE(difference(log, other) == "");
      player<std::decay_t<decltype(policy)>> in_chunks(model, policy, limits_for(tokens));
      in_chunks.open(says);
      in_chunks.observe_prompts = true;
      dice random(seed);
      play_prompt(in_chunks, random);
      in_chunks.play_plainly(0, 200);
      auto& third = in_chunks.at(0).log;
      third.erase(third.begin(), third.lower_bound({says.prompt, 0}));
      REQUIRE(difference(log, third) == "");
    }
  });
}

}  // namespace
}  // namespace zoomr_test

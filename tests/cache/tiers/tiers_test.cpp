// SPDX-License-Identifier: Apache-2.0
// Details in tiers: the bits of a cache whose details are all at hand, at every capacity, whoever moves the bytes.
#include <cache/support/players.hpp>
#include <cache/support/tiered_limits.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>
#include <paging/engines.hpp>

namespace zoomr_test {
namespace {

constexpr shape model{2, 4, 2, 8};
constexpr index_t tokens = 120;

/// Limits with memory for `frames` blocks, over a file.
template <class Policy>
zoomr::config tiers_of(const Policy& policy, const zoomr::config& limits, index_t frames) {
  return tiered_limits(model, policy, with_voters(policy, limits, model), frames);
}

/// The prompt in chunks, then single tokens, drafts, some of them passed whole, dropped steps and rollbacks.
template <class Player>
void play_wildly(Player& plays, std::uint64_t seed, bool goes_back) {
  dice random(seed);
  const tape& says = *plays.at(0).says;
  index_t longest = 0;
  while (!plays.done()) {
    const index_t now = plays.tokens();
    if (now < says.prompt) {
      const index_t left = says.prompt - now;
      const index_t count = random.between(1, left);
      plays.play({{0, says.between(now, now + count), now + count == says.prompt}});
      continue;
    }
    const bool drops = random.chance(10);
    part some = plays.next(0, random.chance(30) ? random.between(2, 5) : 1);
    some.whole = goes_back && random.chance(30);
    plays.play({some}, drops ? fate::dropped_between_layers : fate::committed);
    longest = std::max(longest, plays.tokens());
    if (!goes_back || !random.chance(8)) continue;
    const index_t to = std::max({says.prompt, longest - 12, plays.tokens() - random.between(0, 12)});
    plays.rollback(0, std::min(to, plays.tokens()));
  }
}

template <class Placement, class Policy>
void check(const char* name, const Policy& policy, index_t frames, std::uint64_t seed = 1) {
  CAPTURE(std::string(name));
  CAPTURE(frames);
  const tape says = make_tape(model, seed % 2 == 0 ? kind::peaked : kind::uniform,
                              seed % 2 == 0 ? markup::sentences : markup::pairs, tokens, 40, seed);
  zoomr::config limits = limits_for(tokens);
  limits.rollback_tokens = 12;
  const bool goes_back = !decltype(policy.evict)::observes;
  player<Policy> resident(model, policy, limits);
  resident.open(says);
  play_wildly(resident, seed, goes_back);
  const auto moved = with_placement(policy, Placement{});
  player<std::remove_const_t<decltype(moved)>> tiers(model, moved, tiers_of(moved, limits, frames));
  tiers.open(says);
  play_wildly(tiers, seed, goes_back);
  REQUIRE(difference(resident.at(0).log, tiers.at(0).log) == "");
  const zoomr::tier_statistics moved_bytes = tiers.cache.tiers();
  const bool small =
      !decltype(policy.evict)::observes && frames < (policy.placement.frees_unreachable ? 8 : 16);  // than is in use
  CHECK((!small || (moved_bytes.misses > 0 && moved_bytes.bytes_in > 0 && moved_bytes.bytes_out > 0)));
}

using at_once = zoomr::tiered<zoomr::lru, zoomr::sync_transfers>;
using beside = zoomr::tiered<zoomr::lfu, zoomr::async_transfers>;

/// The next chunk of a prompt, or some tokens after it.
part next_part(const tape& says, index_t now) {
  const bool in_prompt = now < says.prompt;
  const index_t count = in_prompt ? std::min<index_t>(17, says.prompt - now) : 3;
  return {0, says.between(now, now + count), in_prompt && now + count == says.prompt};
}

/// Plays a text in which a transfer fails. What fails is tried again.
/// @return  transfers that were made
template <class Policy>
std::int64_t check_failing(const Policy& policy, const result_log& expected, const tape& says, std::int64_t fails,
                           std::int64_t& failures) {
  unit::script() = {};
  unit::script().fails = fails;
  player<Policy> plays(model, policy, tiers_of(policy, limits_for(tokens), 7));
  plays.open(says);
  while (!plays.done()) {
    const index_t before = plays.tokens();
    try {
      plays.play({next_part(says, before)});
    } catch (const zoomr::error& fault) {
      REQUIRE(fault.code() == zoomr::errc::storage);
      REQUIRE(plays.tokens() == before);
      ++failures;
    }
  }
  failures += plays.failures;
  REQUIRE(difference(expected, plays.at(0).log) == "");
  return unit::script().made;
}

template <class Policy>
void check_each_failing(const Policy& policy) {
  const tape says = make_tape(model, kind::uniform, markup::pairs, tokens, 51, 5);
  player<Policy> resident(model, policy, limits_for(tokens));
  resident.open(says);
  while (!resident.done()) resident.play({next_part(says, resident.tokens())});
  const auto moved = with_placement(policy, zoomr::tiered<zoomr::lru, unit::scripted_transfers>{});
  std::int64_t failures = 0;
  const std::int64_t all = check_failing(moved, resident.at(0).log, says, -1, failures);
  REQUIRE(all > 60);
  REQUIRE(failures == 0);
  for (std::int64_t fails = 0; fails < all; fails += 1 + all / 150) {
    CAPTURE(fails);
    check_failing(moved, resident.at(0).log, says, fails, failures);
  }
  CHECK(failures > 20);
}

}  // namespace

TEST_CASE("a transfer that fails is a failure of its item: the step is made again, and nothing else is different") {
  check_each_failing(small::zoomr_mass);
  check_each_failing(small::sentence_voters);
  check_each_failing(small::quest);
}

TEST_CASE("the same while tokens are evicted: the sequence is what it was") {
  check_each_failing(small::snapkv);
  check_each_failing(small::sentence_kv);
  check_each_failing(small::h2o);
  check_each_failing(small::r_kv);
  check_each_failing(small::evicting);
}

TEST_CASE("capacities that are too small say what would do") {
  const auto policy = with_placement(small::quest, at_once{});
  const auto refused = [&](const zoomr::config& limits) {
    try {
      zoomr::kv_cache<std::remove_const_t<decltype(policy)>> cache(model, policy, limits);
      return std::string();
    } catch (const zoomr::precondition_error& problem) {
      return std::string(problem.what());
    }
  };
  const auto says_why = [&](const zoomr::config& limits, const std::string& why) {
    const std::string said = refused(limits);
    CAPTURE(said);
    CHECK(said == "zoomr: config: " + why);
  };
  const auto too_small = [](const char* tier, zoomr::byte_count least, const char* for_what) {
    return "tiers." + std::string(tier) + " is " + std::to_string(least - 1) + " bytes; it must be at least " +
           std::to_string(least) + ", for " + for_what;
  };
  const zoomr::config enough = tiers_of(policy, limits_for(tokens), 6);
  CHECK(refused(enough) == "");
  zoomr::config limits = enough;
  limits.tiers.host -= 1;
  says_why(limits, too_small("host", enough.tiers.host, "summaries, tables and six pages of one KV head"));
  limits = enough;
  limits.tiers.file -= 1;
  says_why(limits, too_small("file", enough.tiers.file, "all pages of the pool"));
  for (const char* path : {static_cast<const char*>(nullptr), ""}) {
    limits = enough;
    limits.tiers.path = path;
    says_why(limits, "tiers.file needs tiers.path");
  }
  limits = enough;
  limits.tiers.device = 1;
  says_why(limits, "tiers.device is of device_cache; a cache of the host has tiers.host over tiers.file");
}

TEST_CASE("a block holds one KV head where each reads tokens of its own, and all where they read the same") {
  const auto heads = [](const auto& policy) {
    return zoomr::kv_cache<std::remove_cvref_t<decltype(policy)>>(model, policy, limits_for(tokens)).block_heads();
  };
  CHECK(heads(small::full) == 2);
  CHECK(heads(small::zoomr_one_pass) == 2);
  CHECK(heads(small::by_layer) == 2);
  CHECK(heads(small::arkvale) == 2);
  CHECK(heads(small::quest) == 1);
  CHECK(heads(small::by_kv_head) == 1);
  CHECK(heads(small::sentence_kv) == 1);  // each query head
  CHECK(heads(small::h2o) == 1);
  auto keeps_all = small::h2o;
  keeps_all.evict.tokens = zoomr::unlimited;
  CHECK(heads(keeps_all) == 2);
}

TEST_CASE("what is appended is not fetched again, even if a layer has more KV heads than memory has room for") {
  constexpr shape many{2, 8, 8, 8};
  constexpr index_t chunk = 3 * zoomr::page_tokens + 1;
  const auto policy = with_placement(small::quest, at_once{});
  using policy_type = std::remove_const_t<decltype(policy)>;
  zoomr::config limits = limits_for(tokens);
  limits.max_batched_tokens = chunk;
  zoomr::kv_cache<policy_type> cache(many, policy, tiered_limits(many, policy, limits, 6));
  const zoomr::sequence seq = cache.open();
  const std::vector<token_id> ids(chunk, plain_id);
  const std::vector<float> numbers(std::size_t{chunk} * 8 * 8, 1.0f);
  const view<const float, 3> rows(numbers.data(), {chunk, 8, 8});
  auto step = cache.begin(seq, view<const token_id>(ids));
  for (index_t layer = 0; layer < many.layers; ++layer) step.append(layer, rows, rows);
  CHECK(step.failure(0) == nullptr);
  CHECK(cache.tiers().bytes_in == 0);
  CHECK(cache.tiers().misses == many.kv_lanes() * 4);  // a visit of each page and head
}

TEST_CASE("every policy has the bits of a resident cache, at the least capacity and at others") {
  for_each_policy([](const char* name, const auto& policy) {
    if constexpr (!reads_all_keys<std::remove_cvref_t<decltype(policy)>>) {
      check<at_once>(name, policy, 6);
      check<at_once>(name, policy, 6, 2);
      check<at_once>(name, policy, 13, 3);
      check<zoomr::tiered<zoomr::cyclic_mru, zoomr::sync_transfers>>(name, policy, 11, 4);
    }
  });
}

TEST_CASE("at every capacity, with a thread that moves the bytes") {
  for (index_t frames = 6; frames <= 16; ++frames) check<beside>("zoomr_mass", small::zoomr_mass, frames);
  for (index_t frames = 6; frames <= 16; ++frames) check<beside>("quest", small::quest, frames, 2);
  check<beside>("sentence_kv", small::sentence_kv, 7, 3);
  for (index_t frames = 6; frames <= 16; frames += 2) check<beside>("zoomr_voters", small::zoomr_voters, frames, 2);
}

TEST_CASE("of pages whose tokens were evicted nothing is fetched when others take them") {
  const auto policy = with_placement(small::snapkv, at_once{});
  constexpr index_t prompt = 6 * zoomr::page_tokens;
  zoomr::config limits = limits_for(tokens);
  limits.max_sequences = 2, limits.max_batched_tokens = prompt;
  zoomr::kv_cache<std::remove_const_t<decltype(policy)>> cache(model, policy, tiered_limits(model, policy, limits, 20));
  const std::vector<token_id> ids(prompt, plain_id);
  const std::vector<float> numbers(std::size_t{prompt} * 4 * 8, 1.0f);
  const auto rows = [&](index_t count, index_t heads) {
    return view<const float, 3>(numbers.data(), {count, heads, 8});
  };
  auto step = cache.begin(cache.open(), view<const token_id>(ids), true);
  for (index_t layer = 0; layer < model.layers; ++layer) {
    step.append(layer, rows(prompt, 2), rows(prompt, 2));
    step.observe(layer, rows(prompt, 4));
  }
  step.commit();
  const zoomr::byte_count before = cache.tiers().bytes_in;
  CHECK(before > 0);  // what was in the file is fetched to be moved
  auto next = cache.begin(cache.open(), view<const token_id>(ids).slice(0, zoomr::page_tokens));
  for (index_t layer = 0; layer < model.layers; ++layer) {
    next.append(layer, rows(zoomr::page_tokens, 2), rows(zoomr::page_tokens, 2));
  }
  CHECK(cache.tiers().bytes_in == before);
}

}  // namespace zoomr_test

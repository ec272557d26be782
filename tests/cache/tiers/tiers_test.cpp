// SPDX-License-Identifier: Apache-2.0
// Details in tiers: the bits of a cache whose details are all at hand, at every capacity, whoever moves the bytes.
#include <cache/support/players.hpp>
#include <cache/support/tiered_limits.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>
#include <paging/engines.hpp>
#include <support/temporary_folder.hpp>

namespace zoomr_test {
namespace {

constexpr shape model{2, 4, 2, 8};
constexpr index_t tokens = 120;

/// Of a file that unlinks itself.
std::string file_path() {
  static temporary_folder folder;
  return folder.path();
}

/// Limits with `device` blocks, and `host` of them above a file; 0: all in host memory.
template <class Policy>
zoomr::config tiers_of(const Policy& policy, const zoomr::config& limits, index_t device, index_t host,
                       std::string& path) {
  if (host > 0) path = file_path();
  return tiered_limits(model, policy, with_voters(policy, limits, model), device, host,
                       host > 0 ? path.c_str() : nullptr);
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
void check(const char* name, const Policy& policy, index_t device, index_t host, std::uint64_t seed = 1) {
  CAPTURE(std::string(name));
  CAPTURE(device);
  CAPTURE(host);
  const tape says = make_tape(model, seed % 2 == 0 ? kind::peaked : kind::uniform,
                              seed % 2 == 0 ? markup::sentences : markup::pairs, tokens, 40, seed);
  zoomr::config limits = limits_for(tokens);
  limits.rollback_tokens = 12;
  const bool goes_back = !decltype(policy.evict)::observes;
  player<Policy> resident(model, policy, limits);
  resident.open(says);
  play_wildly(resident, seed, goes_back);
  const auto moved = with_placement(policy, Placement{});
  std::string path;
  player<std::remove_const_t<decltype(moved)>> tiers(model, moved, tiers_of(moved, limits, device, host, path));
  tiers.open(says);
  play_wildly(tiers, seed, goes_back);
  REQUIRE(difference(resident.at(0).log, tiers.at(0).log) == "");
  const zoomr::tier_statistics moved_bytes = tiers.cache.tiers();
  const bool small =
      !decltype(policy.evict)::observes && device < (policy.placement.frees_unreachable ? 8 : 16);  // than is in use
  CHECK((!small || (moved_bytes.misses > 0 && moved_bytes.device_in > 0 && moved_bytes.device_out > 0)));
  CHECK((!small || host == 0 || host >= 12 || moved_bytes.file_out > 0));
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
std::int64_t check_failing(const Policy& policy, const result_log& expected, const tape& says, bool file,
                           std::int64_t fails, std::int64_t& failures) {
  unit::script() = {};
  unit::script().fails = fails;
  std::string path;
  const zoomr::config limits = tiers_of(policy, limits_for(tokens), 7, file ? 6 : 0, path);
  player<Policy> plays(model, policy, limits);
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
void check_each_failing(const Policy& policy, bool file) {
  const tape says = make_tape(model, kind::uniform, markup::pairs, tokens, 51, 5);
  player<Policy> resident(model, policy, limits_for(tokens));
  resident.open(says);
  while (!resident.done()) resident.play({next_part(says, resident.tokens())});
  const auto moved = with_placement(policy, zoomr::tiered<zoomr::lru, unit::scripted_transfers>{});
  std::int64_t failures = 0;
  const std::int64_t all = check_failing(moved, resident.at(0).log, says, file, -1, failures);
  REQUIRE(all > 60);
  REQUIRE(failures == 0);
  for (std::int64_t fails = 0; fails < all; fails += 1 + all / 150) {
    CAPTURE(fails);
    check_failing(moved, resident.at(0).log, says, file, fails, failures);
  }
  CHECK(failures > 20);
}

}  // namespace

TEST_CASE("a transfer that fails is a failure of its item: the step is made again, and nothing else is different") {
  for (const bool file : {false, true}) check_each_failing(small::zoomr_mass, file);
  for (const bool file : {false, true}) check_each_failing(small::sentence_voters, file);
  check_each_failing(small::quest, true);
}

TEST_CASE("the same while tokens are evicted: the sequence is what it was") {
  check_each_failing(small::snapkv, false);
  check_each_failing(small::sentence_kv, true);
  check_each_failing(small::h2o, true);
  check_each_failing(small::r_kv, false);
  check_each_failing(small::evicting, true);
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
  std::string path;
  zoomr::config limits = tiers_of(policy, limits_for(tokens), 6, 6, path);
  CHECK(refused(limits) == "");
  limits.tiers.path = (path += "b").c_str();
  const zoomr::byte_count least = limits.tiers.device;
  limits.tiers.device = least - 1;
  CHECK(refused(limits).find("tiers.device is " + std::to_string(least - 1) + " bytes; it must be at least " +
                             std::to_string(least) + ", for summaries, tables and six pages of one KV head") !=
        std::string::npos);
  limits.tiers.device = least;
  limits.tiers.host -= 1;
  CHECK(refused(limits).find("tiers.host is") != std::string::npos);
  limits.tiers.host += 1;
  limits.tiers.file -= 1;
  CHECK(refused(limits).find("tiers.file is") != std::string::npos);
  limits.tiers.file += 1;
  limits.tiers.path = nullptr;
  CHECK(refused(limits).find("tiers.path") != std::string::npos);
  limits.tiers.path = "";
  CHECK(refused(limits).find("tiers.path") != std::string::npos);
  limits.tiers.file = 0;  // all pages are in host memory then, as far as it is given
  CHECK(refused(limits).find("for all pages of the pool, and tables") != std::string::npos);
  limits.tiers.host = 0;
  CHECK(refused(limits) == "");
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
  CHECK(heads(small::drifting) == 1);
  CHECK(heads(small::sentence_kv) == 1);  // each query head
  CHECK(heads(small::h2o) == 1);
  auto keeps_all = small::h2o;
  keeps_all.evict.tokens = zoomr::unlimited;
  CHECK(heads(keeps_all) == 2);
}

TEST_CASE("what is appended is not fetched again, even if a layer has more KV heads than a device has blocks") {
  constexpr shape many{2, 8, 8, 8};
  constexpr index_t chunk = 3 * zoomr::page_tokens + 1;
  const auto policy = with_placement(small::quest, at_once{});
  using policy_type = std::remove_const_t<decltype(policy)>;
  zoomr::config limits = limits_for(tokens);
  limits.max_batched_tokens = chunk;
  zoomr::kv_cache<policy_type> cache(many, policy, tiered_limits(many, policy, limits, 6, 0, nullptr));
  const zoomr::sequence seq = cache.open();
  const std::vector<token_id> ids(chunk, plain_id);
  const std::vector<float> numbers(std::size_t{chunk} * 8 * 8, 1.0f);
  const view<const float, 3> rows(numbers.data(), {chunk, 8, 8});
  auto step = cache.begin(seq, view<const token_id>(ids));
  for (index_t layer = 0; layer < many.layers; ++layer) step.append(layer, rows, rows);
  CHECK(step.failure(0) == nullptr);
  CHECK(cache.tiers().device_in == 0);
  CHECK(cache.tiers().misses == many.kv_lanes() * 4);  // a visit of each page and head
}

TEST_CASE("every policy has the bits of a resident cache, at the least capacity, over host memory and over a file") {
  for_each_policy([](const char* name, const auto& policy) {
    if constexpr (!reads_all_keys<std::remove_cvref_t<decltype(policy)>>) {
      check<at_once>(name, policy, 6, 0);
      check<at_once>(name, policy, 6, 6, 2);
      check<at_once>(name, policy, 13, 0, 3);
      check<zoomr::tiered<zoomr::cyclic_mru, zoomr::sync_transfers>>(name, policy, 11, 7, 4);
    }
  });
}

TEST_CASE("at every capacity, with a thread that moves the bytes") {
  for (index_t device = 6; device <= 16; ++device) check<beside>("zoomr_mass", small::zoomr_mass, device, 0);
  for (index_t device = 6; device <= 16; ++device) check<beside>("quest", small::quest, device, 22 - device, 2);
  check<beside>("sentence_kv", small::sentence_kv, 7, 6, 3);
  for (index_t device = 6; device <= 16; device += 2) {
    check<beside>("zoomr_voters", small::zoomr_voters, device, 22 - device, 2);
  }
}

TEST_CASE("of pages whose tokens were evicted nothing is fetched when others take them") {
  const auto policy = with_placement(small::snapkv, at_once{});
  constexpr index_t prompt = 6 * zoomr::page_tokens;
  zoomr::config limits = limits_for(tokens);
  limits.max_sequences = 2, limits.max_batched_tokens = prompt;
  zoomr::kv_cache<std::remove_const_t<decltype(policy)>> cache(model, policy,
                                                               tiered_limits(model, policy, limits, 20, 0, nullptr));
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
  const zoomr::byte_count before = cache.tiers().device_in;
  CHECK(before > 0);  // what was below is fetched to be moved
  auto next = cache.begin(cache.open(), view<const token_id>(ids).slice(0, zoomr::page_tokens));
  for (index_t layer = 0; layer < model.layers; ++layer) {
    next.append(layer, rows(zoomr::page_tokens, 2), rows(zoomr::page_tokens, 2));
  }
  CHECK(cache.tiers().device_in == before);
}

}  // namespace zoomr_test

// SPDX-License-Identifier: Apache-2.0
// A device cache over a tiered store has the bits of one whose details all lie on the device, whatever its arena holds.
#include <cache/device_against_host.hpp>
#include <cache/small_policies.hpp>
#include <zoomr/store/tiered.hpp>

#include <doctest/doctest.h>
#include <support/mutations.hpp>

namespace zoomr_test {
namespace {

inline constexpr auto each_kv_head = with(small::quest, [](auto& p) { p.agree.per = zoomr::scope::kv_head; });
inline constexpr auto each_head = with(small::quest, [](auto& p) { p.agree.per = zoomr::scope::head; });

/// Limits under which the arena has room for `slots` blocks.
template <class Policy>
zoomr::config arena_limits(const Policy& policy, zoomr::config limits, index slots) {
  using sizes = zoomr::device_sizes<Policy>;
  limits.tiers.device = zoomr::byte_count{1} << 40;
  const zoomr::byte_count slot = sizes(model, policy, limits, 3).page_numbers() * 4 + 12;
  for (limits.tiers.device = 0;;) {  // the least, as its refusal says
    try {
      zoomr::device_cache<Policy, float, 8, 2>::bytes(model, policy, limits, 3);
      limits.tiers.device += (slots - 1) * slot;
      return limits;
    } catch (const zoomr::precondition_error& refused) {
      const std::string what = refused.what();
      const std::size_t at = what.find("at least ");
      REQUIRE(at != std::string::npos);
      const auto least = static_cast<zoomr::byte_count>(std::stoll(what.substr(at + 9)));
      REQUIRE(least > limits.tiers.device);
      limits.tiers.device = least;
    }
  }
}

/// What a play has given, bit by bit.
inline void same_bits(const result_log& expected, const result_log& got) { REQUIRE(difference(expected, got) == ""); }

template <class Policy>
void check_tiers(const Policy& policy, kind look, markup text, std::uint64_t seed, std::vector<index> sizes,
                 bool fixed = false) {
  INFO("seed ", seed);
  const tape says = make_tape(model, look, text, tokens, static_cast<index>(20 + seed * 7 % 20), seed);
  zoomr::config limits = limits_for(tokens);
  limits.dense_below = seed % 3 == 0 ? 47 : 0;
  device_player<Policy> resident(model, policy, limits);
  resident.cache.fixed = fixed;
  resident.open(says);
  play_wildly(resident, policy, seed);
  const auto moved = with_store(policy, zoomr::tiered<>{});
  for (const index slots : sizes) {
    CAPTURE(slots);
    const zoomr::config tiers = arena_limits(moved, limits, slots);
    device_player<std::remove_const_t<decltype(moved)>> plays(model, moved, tiers);
    plays.cache.fixed = fixed;
    plays.open(says);
    play_wildly(plays, moved, seed);
    same_bits(resident.at(0).log, plays.at(0).log);
    const zoomr::arena_counts counts = plays.cache.tiers();
    CHECK(counts.misses > 0);
    CHECK((slots > 2 || counts.far > 0));  // a prompt reads more pages of a layer
    CHECK((slots < 9 || counts.far == 0));
    CHECK((slots < 9 || counts.hits > counts.misses));
    if (slots < 1000) continue;
    CHECK(counts.misses <= 2u * (96 / 16 + 4));  // each block comes once, and what was rolled back again
  }
}

}  // namespace

TEST_CASE("full, in arenas of any size") { check_tiers(small::full, kind::uniform, markup::stray, 1, {1, 5, 9, 1000}); }
TEST_CASE("zoomr_mass: choices of all layers, asked again, as for a graph") {
  check_tiers(small::zoomr_mass, kind::uniform, markup::pairs, 3, {5}, true);
}
TEST_CASE("zoomr_focus: each layer alone") { check_tiers(small::zoomr_focus, kind::peaked, markup::pairs, 4, {9}); }
TEST_CASE("sentence_box, and quest for each KV head or each head") {
  check_tiers(small::sentence_box, kind::peaked, markup::sentences, 6, {5});
  check_tiers(each_kv_head, kind::peaked, markup::stray, 8, {2}, true);
  check_tiers(each_head, kind::ties, markup::stray, 9, {1000});
}

TEST_CASE("no barrier of placing can be left out") {
  const tape says = make_tape(model, kind::peaked, markup::stray, 56, 50, 12);
  const auto logged = [&](auto policy, const zoomr::config& limits) {
    device_player<decltype(policy)> plays(model, policy, limits);
    plays.open(says);
    plays.play_plainly();
    return plays.at(0).log;
  };
  const zoomr::config limits = limits_for(56);
  const auto moved = with_store(small::full, zoomr::tiered<>{});
  const zoomr::config tiers = arena_limits(moved, limits, 5);
  const auto expected = logged(small::full, limits);
  const auto plays_the_same = [&] { return difference(expected, logged(moved, tiers)) == ""; };
  in_all_orders([&](const std::string& order) {
    CAPTURE(order);
    CHECK(plays_the_same());
  });
#if defined(ZOOMR_SIMT)
  index found = 0;
  for_each_barrier_left_out(plays_the_same, [&](const left_out_barrier& one) {
    if (one.barrier.find("device_fetching.cuh") == std::string::npos) return;
    CAPTURE(one.barrier);
    CHECK(one.noticed);
    ++found;
  });
  CHECK(found == 4);
#endif
}

TEST_CASE("several sequences share an arena, prompts beside drafts") {
  const auto play = [](auto policy, zoomr::config limits) {
    limits.step_tokens = 48;
    device_player<decltype(policy)> plays(model, policy, limits);
    std::vector<tape> says;
    for (std::uint64_t v = 0; v < 3; ++v) {
      says.push_back(make_tape(model, kind::peaked, v == 2 ? markup::pairs : markup::sentences, 60, 30, 10 + v));
    }
    for (const tape& one : says) plays.open(one);
    play_together(plays, policy, 10);
    std::vector<result_log> logs;
    for (index v = 0; v < 3; ++v) logs.push_back(plays.at(v).log);
    return logs;
  };
  const auto moved = with_store(small::quest, zoomr::tiered<>{});
  zoomr::config limits = limits_for(60, 3);
  limits.step_tokens = 48;
  const auto expected = play(small::quest, limits);
  const auto got = play(moved, arena_limits(moved, limits, 3));
  for (std::size_t v = 0; v < 3; ++v) same_bits(expected[v], got[v]);
}

TEST_CASE("what cannot work is refused with one sentence") {
  const auto moved = with_store(small::quest, zoomr::tiered<>{});
  using cache_type = zoomr::device_cache<std::remove_const_t<decltype(moved)>, float, 8, 2>;
  const auto refused = [&](const zoomr::config& limits) {
    try {
      cache_type::bytes(model, moved, limits, 3);
      return std::string();
    } catch (const zoomr::precondition_error& problem) {
      return std::string(problem.what());
    }
  };
  zoomr::config limits = arena_limits(moved, limits_for(tokens), 4);
  CHECK(refused(limits) == "");
  CHECK(cache_type::bytes(model, moved, limits, 3) <= limits.tiers.device);
  limits.tiers.host = cache_type::host_bytes(model, moved, limits);
  CHECK(refused(limits) == "");
  --limits.tiers.host;
  CHECK(refused(limits).find("tiers.host must be 0 or at least") != std::string::npos);
  limits.tiers.host = 0;
  limits.tiers.file = 1 << 20;
  CHECK(refused(limits).find("no file under the host's tier") != std::string::npos);
}

}  // namespace zoomr_test

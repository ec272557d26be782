// SPDX-License-Identifier: Apache-2.0
// Ranks that divide the tokens of each sequence choose as one cache, and attend what it attends.
#include <cache/ranks/ranked_cache.hpp>
#include <cache/support/conversations.hpp>
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>
#include <zoomr/core/ranks/thread_ranks.hpp>

#include <doctest/doctest.h>

#include <algorithm>  // std::max
#include <chrono>     // std::chrono
#include <cstdlib>    // std::getenv, std::strtoull
#include <string>     // std::string
#include <vector>     // std::vector

namespace zoomr_test {
namespace {

using namespace std::chrono_literals;

constexpr shape model{2, 4, 2, 8};
const std::vector<head_split> deals = {dealt(2, 16), dealt(3, 16), dealt(4, 16), dealt(2, 48), dealt(3, 32)};

/// Of each policy, at least.
const std::uint64_t lives = std::max<std::uint64_t>(
    5, std::getenv("ZOOMR_SEEDS") != nullptr ? std::strtoull(std::getenv("ZOOMR_SEEDS"), nullptr, 10) : 0);

/// Of each rank an end.
std::vector<zoomr::rank_group> all_of(zoomr::thread_ranks& ranks) {
  std::vector<zoomr::rank_group> ends;
  for (index_t rank = 0; rank < ranks.count(); ++rank) ends.emplace_back(ranks.end(rank));
  return ends;
}

template <class Policy>
constexpr bool needs_all_tokens(const Policy&) {
  if constexpr (requires(Policy p) { p.aggregate.queries; }) return decltype(Policy::evict)::observes;
  return decltype(Policy::evict)::observes || reads_keys<Policy>;
}

zoomr::config limits_of(const tape& says, index_t window, index_t sequences = 1) {
  zoomr::config limits = limits_for(says.size() + 3, sequences);
  limits.max_draft_tokens = 23;
  limits.logits.window = window;
  return limits;
}

/// What a rank keeps of a sequence is its own, or not yet settled, or ends a segment of its own.
/// @param scores_keys  segments are scored where they begin
void check_pages(ranked_player& plays, index_t deal, bool scores_keys) {
  const index_t ranks = static_cast<index_t>(plays.cache.caches.size()), depth = limits_for(1).rollback_tokens;
  for (voice& each : plays.voices) {
    for (index_t rank = 0; rank < ranks; ++rank) {
      auto& cache = plays.cache.at(rank);
      const auto lane = cache.kv_lane(each.seq, 1, 0);
      const index_t tokens = cache.tokens(each.seq);
      index_t held = 0;
      for (index_t slot = 0; slot < tokens; slot += 16) {
        const bool own = slot / deal % ranks == rank;
        if (own && slot >= cache.passed_slots(each.seq)) REQUIRE(lane.holds(slot));
        bool ends_own = false;
        for (const zoomr::segment& s : cache.segments(each.seq))
          ends_own = ends_own || (s.begin / deal % ranks == rank && s.begin < slot + 16 && s.end > slot);
        if (scores_keys && ends_own) REQUIRE(lane.holds(slot));
        held += !own && !(scores_keys && ends_own) && lane.holds(slot) ? 16 : 0;
      }
      REQUIRE(held <= depth + 40 + 32);  // the longest segment, and pages that are cut
    }
  }
}

template <class Policy>
void check_lives(const head_split& split, const Policy& policy, const tape& says, index_t window, std::uint64_t seed,
                 happened& all) {
  player<Policy> alone(model, policy, limits_of(says, window));
  alone.open(says);
  alone.play_plainly();
  zoomr::thread_ranks plain_ends(split.ranks()), ends(split.ranks());
  ranked_player plainly({model, split}, policy, limits_of(says, window), all_of(plain_ends));
  plainly.open(says);
  plainly.play_plainly();
  const log_comparison close = compared(alone.at(0).log, plainly.at(0).log, tolerance_of(8, says.size()));
  CAPTURE(close.place.first);
  REQUIRE(close.difference == "");
  ranked_player plays({model, split}, policy, limits_of(says, window, 3), all_of(ends));
  plays.open(says);
  live(
      policy, plays, seed, all, [](index_t) {},
      [&](dice& random) {
        any_step(plays, random, all, takes_back_alike<Policy>);
        if (!frees_pages(policy)) check_pages(plays, split.deal, reads_keys<Policy>);
      });
  for (voice& each : plays.voices) REQUIRE(difference(plainly.at(0).log, each.log) == "");
}

}  // namespace

TEST_CASE("ranks choose as one cache and attend the same tokens, whatever befalls their sequences") {
  for_each_policy([](const char* name, const auto& policy) {
    using policy_type = std::decay_t<decltype(policy)>;
    if (needs_all_tokens(policy)) return;
    happened all;
    for (std::uint64_t seed = 1; seed <= lives; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      tape says = conversation(model, seed, seed % 3 == 0 ? kind::peaked : kind::uniform);
      if (frees_pages(policy)) says.later_prompts.clear();
      if (seed % 2 == 1) says = with_whole_items(policy, says, seed);
      const index_t window = !policy_type::selects && seed % 3 == 1 ? 50 : 0;
      check_lives(deals[seed % deals.size()], policy, says, window, seed, all);
    }
    CAPTURE(std::string(name));
    CHECK(all.forked > 0);
  });
}

}  // namespace zoomr_test

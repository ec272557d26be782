// SPDX-License-Identifier: Apache-2.0
// Details in tiers: the bits of a cache whose details are all at hand, at every capacity, whoever moves the bytes.
#include <cache/driving.hpp>
#include <cache/small_policies.hpp>
#include <zoomr/store/tiered.hpp>

#include <doctest/doctest.h>

#include <cstdlib>  // mkdtemp

namespace zoomr_test {
namespace {

constexpr shape model{2, 4, 2, 8};
constexpr index tokens = 120;

/// The policy with another store.
template <class Store, class Segmenter, class Retainer, class Summarizer, class Asker, class Scorer, class Consensus,
          class Selector, class Refresh, class Zones, class Old>
constexpr auto with_store(
    const zoomr::policy<Segmenter, Retainer, Summarizer, Asker, Scorer, Consensus, Selector, Refresh, Zones, Old>& of) {
  return zoomr::policy<Segmenter, Retainer, Summarizer, Asker, Scorer, Consensus, Selector, Refresh, Zones, Store>{
      of.segment, of.retain, of.summarize, of.ask, of.score, of.agree, of.select, of.refresh, of.zone, Store{}};
}

/// A directory for files that unlink themselves.
std::string file_path() {
  static const std::string folder = [] {
    char name[] = "/tmp/zoomr_tiers_XXXXXX";
    return std::string(mkdtemp(name));
  }();
  static int number = 0;
  return folder + "/" + std::to_string(number++);
}

/// Limits with `device` pages of one layer, and `host` of them above a file; 0: all in host memory.
template <class Policy>
zoomr::config tiered_limits(const Policy& policy, zoomr::config limits, index device, index host, std::string& path) {
  using cache_type = zoomr::kv_cache<Policy>;
  const zoomr::byte_count block = 2 * model.kv_heads * 16 * model.head_dim * 4;
  limits.tiers.device = zoomr::byte_count{1} << 40;
  const zoomr::memory_use all = cache_type::bytes(model, policy, limits);
  limits.tiers.device = all.total() - all.details + device * block;
  if (host > 0) {
    path = file_path();
    limits.tiers.host = host * block;
    limits.tiers.file = all.host;
    limits.tiers.path = path.c_str();
  }
  return limits;
}

/// The prompt in chunks, then single tokens, drafts, dropped steps and rollbacks.
template <class Player>
void play_wildly(Player& plays, std::uint64_t seed, bool goes_back) {
  dice random(seed);
  const tape& says = *plays.at(0).says;
  index longest = 0;
  while (!plays.done()) {
    const index now = plays.tokens();
    if (now < says.prompt) {
      const index left = says.prompt - now;
      const index count = left <= 16 ? left : random.between(1, left - 16);  // the last chunk holds what is observed
      plays.play({{0, says.between(now, now + count), now + count == says.prompt}});
      continue;
    }
    const bool drops = random.chance(10);
    plays.play({plays.next(0, random.chance(30) ? random.between(2, 5) : 1)},
               drops ? fate::dropped_between_layers : fate::committed);
    longest = std::max(longest, plays.tokens());
    if (!goes_back || !random.chance(8)) continue;
    const index to = std::max({says.prompt, longest - 12, plays.tokens() - random.between(0, 12)});
    plays.rollback(0, std::min(to, plays.tokens()));
  }
}

template <class Store, class Policy>
void check(const char* name, const Policy& policy, index device, index host, std::uint64_t seed = 1) {
  CAPTURE(std::string(name));
  CAPTURE(device);
  CAPTURE(host);
  const tape says = make_tape(model, seed % 2 == 0 ? kind::peaked : kind::uniform,
                              seed % 2 == 0 ? markup::sentences : markup::pairs, tokens, 40, seed);
  zoomr::config limits = limits_for(tokens);
  limits.undo_tokens = 12;
  const bool goes_back = !decltype(policy.retain)::observes;
  player<Policy> resident(model, policy, limits);
  resident.open(says);
  play_wildly(resident, seed, goes_back);
  const auto moved = with_store<Store>(policy);
  std::string path;
  player<std::remove_const_t<decltype(moved)>> tiers(model, moved, tiered_limits(moved, limits, device, host, path));
  tiers.open(says);
  play_wildly(tiers, seed, goes_back);
  REQUIRE(difference(resident.at(0).log, tiers.at(0).log) == "");
  const zoomr::tier_statistics& moved_bytes = tiers.cache.tiers();
  const bool small = !decltype(policy.retain)::observes && device < 2 * 8;  // fewer slots than pages in all layers
  CHECK((!small || (moved_bytes.misses > 0 && moved_bytes.device_in > 0 && moved_bytes.device_out > 0)));
  CHECK((!small || host == 0 || moved_bytes.file_out > 0));
}

using at_once = zoomr::tiered<zoomr::least_recent, zoomr::transfers_at_once>;
using beside = zoomr::tiered<zoomr::least_frequent, zoomr::transfers_beside>;

}  // namespace

TEST_CASE("every policy has the bits of a resident cache, at the least capacity, over host memory and over a file") {
  for_each_policy([](const char* name, const auto& policy) {
    check<at_once>(name, policy, 6, 0);
    check<at_once>(name, policy, 6, 6, 2);
  });
}

TEST_CASE("at every capacity, with a thread that moves the bytes") {
  for (index device = 6; device <= 16; ++device) check<beside>("zoomr_mass", small::zoomr_mass, device, 0);
  for (index device = 6; device <= 16; ++device) check<beside>("quest", small::quest, device, 22 - device, 2);
  check<beside>("sentence_kv", small::sentence_kv, 7, 6, 3);
}

}  // namespace zoomr_test

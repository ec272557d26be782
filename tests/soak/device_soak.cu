// SPDX-License-Identifier: Apache-2.0
// Random interleavings on a device, under the shim, against the host: texts in chunks and drafts, steps that are
// dropped, rollbacks, items that are passed whole; every policy, in memory of its own, over tiers and as for a
// graph; several sequences; streams and blocks at random. Under evictors drafts have up to 16 tokens,
// elsewhere 6. Selections must be the host's, outputs within tolerance.
//
// ZOOMR_DEVICE_OPERATIONS steps and rollbacks on the device in all, or just about; ZOOMR_DEVICE_SEED the first seed. A
// failure names policy and seed.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cache/device/tiers/arena_limits.hpp>
#include <cache/support/small_policies.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <cstdio>   // std::fprintf
#include <cstdlib>  // std::getenv, std::strtoll
#include <string>   // std::string

#include <unistd.h>  // isatty

namespace zoomr_test {
namespace {

std::int64_t number(const char* variable, std::int64_t otherwise) {
  const char* const given = std::getenv(variable);
  return given == nullptr ? otherwise : std::strtoll(given, nullptr, 10);
}

/// Everything until the end of a scope at times that a seed gives, and each launch's blocks in another order.
struct at_random {
  simt::scoped_settings until_then;
  explicit at_random(std::uint64_t seed)
      : until_then([&] {
          simt::settings how = simt::how;
          how.streams = static_cast<simt::schedule>(seed % 3);
          how.blocks = simt::order::any;
          return how;
        }()) {
    simt::streams.random.seed(seed);
    simt::block.orders.seed(seed);
  }
};

/// Drafts that are longer than the queries that eviction remembers.
template <class Policy>
constexpr index_t longest_draft_of(const Policy& policy) {
  return policy.evict.observes ? 16 : short_draft;
}
template <class Policy>
zoomr::config long_draft_limits(const Policy& policy, index_t sequences = 1) {
  zoomr::config limits = limits_for(tokens, sequences);
  limits.max_draft_tokens = std::max(limits.max_draft_tokens, longest_draft_of(policy));
  return limits;
}

/// The same play as on the host, in an arena of some slots.
template <class Policy>
void check_in_arena(const Policy& policy, kind look, markup text, std::uint64_t seed, index_t slots) {
  const auto moved = with_placement(policy, zoomr::tiered<>{});
  const tape says = make_tape(model, look, text, tokens, static_cast<index_t>(20 + seed * 7 % 20), seed);
  const zoomr::config limits = long_draft_limits(policy);
  player<Policy> host(model, policy, limits);
  device_player<std::remove_const_t<decltype(moved)>> device(
      model, moved, arena_limits(moved, with_voters(moved, limits, model), slots));
  device.cache.fixed = seed % 2 == 0;
  host.open(says), device.open(says);
  play_wildly(host, policy, seed, longest_draft_of(policy));
  play_wildly(device, moved, seed, longest_draft_of(moved));
  compare(host.at(0).log, device.at(0).log);
}

template <class Policy>
void one_life(const Policy& policy, std::uint64_t seed) {
  constexpr kind looks[] = {kind::uniform, kind::peaked, kind::ties};
  constexpr markup texts[] = {markup::pairs, markup::stray, markup::sentences, markup::summaries_alone};
  dice random(seed);
  const kind look = looks[random.roll() % 3];
  const markup text = texts[random.roll() % 4];
  const at_random schedule(seed);
  const index_t slots = random.between(1, 12);
  constexpr bool has_tiers = !Policy{}.placement.frees_unreachable && !reads_keys<Policy>;
  switch (random.roll() % 4) {
    case 0:
      if constexpr (has_tiers) return check_in_arena(policy, look, text, seed, slots);
      [[fallthrough]];
    case 1:
      return check_together(policy, seed, longest_draft_of(policy));
    default:
      return check(policy, look, text, seed, seed % 4 == 0, 0, {}, longest_draft_of(policy));
  }
}

}  // namespace

TEST_CASE("whatever comes in whatever order, a device chooses what the host chooses") {
  const std::int64_t wanted = number("ZOOMR_DEVICE_OPERATIONS", 2000);
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const std::int64_t before = operations_on_device;
  whole_percent = 40;
  for (auto seed = static_cast<std::uint64_t>(number("ZOOMR_DEVICE_SEED", 1)); operations_on_device - before < wanted;
       ++seed) {
    for_each_policy([&](const char* name, const auto& policy) {
      INFO(std::string(name), ", ZOOMR_DEVICE_SEED=", seed);
      using policy_type = std::remove_cvref_t<decltype(policy)>;
      constexpr bool votes = zoomr::share_aggregator<decltype(policy_type::aggregate)>;
      if constexpr (!reads_keys<policy_type> || votes) one_life(policy, seed);
    });
    if (terminal) {
      std::fprintf(stderr, "\r%lld of %lld operations, seed %llu ",
                   static_cast<long long>(operations_on_device - before), static_cast<long long>(wanted),
                   static_cast<unsigned long long>(seed));
    }
  }
  std::printf("%lld steps and rollbacks on the device\n", static_cast<long long>(operations_on_device - before));
}

}  // namespace zoomr_test

// SPDX-License-Identifier: Apache-2.0
// Values of another width than keys on a device, and values that lie in keys: what each query attends is what it
// attends on the host, and outputs are the host's, in memory of the cache's own, over tiers and in an engine's pages.
#include <cache/device/device_against_host.hpp>
#include <cache/device/device_engine.hpp>
#include <cache/device/tiers/arena_limits.hpp>
#include <cache/support/small_policies.hpp>
#include <support/nightly.hpp>
#include <support/state_digest.hpp>
#include <zoomr/device_transfer.cuh>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

using zoomr::values_apart, zoomr::values_in_keys;

constexpr index_t key_dim = 24, readers = 2;

/// A model of two layers, whose values lie as `Values` says.
template <class Values>
constexpr shape model_of() {
  return {2, 4, 2, key_dim, Values::width, Values::in_keys};
}
template <class Values, class Policy>
using player_of = player<Policy, float, device_as_host<Policy, float, key_dim, readers, float, Values>>;

/// @param placed  the same policy, with a placement on the device
template <class Values, class Policy, class Placed>
void check_widths(const Policy& policy, const Placed& placed, const zoomr::config& on_device, std::uint64_t seed) {
  INFO("seed ", seed, ", values of ", Values::width, Values::in_keys ? " in keys" : "");
  constexpr shape of = model_of<Values>();
  const tape says = make_tape(of, kind::peaked, markup::pairs, tokens, 33, seed);
  player<Policy> host(of, policy, limits_for(tokens));
  player_of<Values, Placed> device(of, placed, on_device);
  device.cache.fixed = seed % 2 == 0;
  host.open(says), device.open(says);
  play_wildly(host, policy, seed);
  play_wildly(device, placed, seed);
  compare(host.at(0).log, device.at(0).log, key_dim);
}
template <class Values, class Policy>
void check_own(const Policy& policy, std::uint64_t seed) {
  check_widths<Values>(policy, policy, limits_for(tokens), seed);
}

/// A cache's bytes are those of the widths: keys alone, or both.
template <class Values>
void check_bytes() {
  using cache_type = zoomr::device_cache<std::remove_const_t<decltype(small::full)>, float, key_dim, readers, Values>;
  using plain_type = zoomr::device_cache<std::remove_const_t<decltype(small::full)>, float, key_dim, readers>;
  const zoomr::config limits = limits_for(tokens);
  const std::int64_t numbers = std::int64_t{2} * 2 * zoomr::pages_for(limits.pool()) * zoomr::page_tokens;
  constexpr shape plain{2, 4, 2, key_dim};
  const std::int64_t saved =
      plain_type::bytes(plain, small::full, limits, 1) - cache_type::bytes(model_of<Values>(), small::full, limits, 1);
  CHECK(saved / 256 == numbers * (key_dim - Values::stored) * 4 / 256);
}

}  // namespace

TEST_CASE("under every way to choose") {
  ZOOMR_NIGHTLY(check_own<values_in_keys<16>>(small::full, 1));
  ZOOMR_NIGHTLY(check_own<values_apart<16>>(small::full, 2));
  check_own<values_in_keys<16>>(small::quest, 3);
  check_own<values_apart<16>>(small::sentence_kv, 4);
  ZOOMR_NIGHTLY(check_own<values_in_keys<16>>(small::zoomr_second_pass, 5));
  check_own<values_apart<16>>(small::by_kv_head, 6);
}
TEST_CASE("under eviction") {
  check_own<values_in_keys<16>>(small::h2o, 11);
  ZOOMR_NIGHTLY(check_own<values_apart<16>>(small::r_kv, 12));
}

TEST_CASE("latents of a model's size: more heads than ask at once, and tensor cores") {
  using zoomr::bfloat16;
  using values = values_in_keys<512>;
  constexpr shape of{2, 16, 1, 576, values::width, true};
  static_assert(zoomr::detail::asking_at_once<576>(16) == 8);
  const auto check = [&](const auto& policy, std::uint64_t seed) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    CAPTURE(seed);
    const tape says = make_tape(of, kind::ties, markup::sentences, 64, 33, seed);  // exact in bfloat16
    player<policy_type, bfloat16> host(of, policy, limits_for(64));
    player<policy_type, bfloat16, device_as_host<policy_type, bfloat16, 576, 16, bfloat16, values>> device(
        of, policy, limits_for(64));
    host.open(says), device.open(says);
    while (!host.done()) {
      const part next = host.tokens() < 33 ? part{0, says.between(host.tokens(), 33), true} : host.next(0, 2);
      host.play({next}), device.play({next});
    }
    // values and outputs are rounded to bfloat16 on the device, weights too
    compare(host.at(0).log, device.at(0).log, 576, tolerance::rounded_weights(7, 64) + tolerance::rounded(7) * 4);
  };
  check(small::quest, 21);
  ZOOMR_NIGHTLY(check(small::sentence_kv, 22));
}
TEST_CASE("over tiers") {
  const auto check = [](const auto& policy, auto values, std::uint64_t seed) {
    using values_type = decltype(values);
    const auto moved = with_placement(policy, zoomr::tiered<>{});
    using cache_type = zoomr::device_cache<std::remove_const_t<decltype(moved)>, float, key_dim, readers, values_type>;
    constexpr shape of = model_of<values_type>();
    for (const index_t slots : {1, 9}) {
      const zoomr::config limits =
          arena_limits<std::remove_const_t<decltype(moved)>, cache_type>(moved, limits_for(tokens), slots, of);
      const std::int64_t page = std::int64_t{16} * 2 * (key_dim + values_type::stored) * 4;
      CHECK(cache_type::host_bytes(of, moved, limits) == 2 * zoomr::pages_for(limits.pool()) * page);
      check_widths<values_type>(policy, moved, limits, seed + static_cast<std::uint64_t>(slots));
    }
  };
  check(small::quest, values_in_keys<16>{}, 81);
  check(small::sentence_kv, values_apart<16>{}, 91);
  ZOOMR_NIGHTLY(check(small::h2o, values_apart<16>{}, 101));
}

TEST_CASE("latents in an engine's pages, of any layout") {
  const auto check = [](const auto& policy, std::uint64_t seed) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    constexpr shape of = model_of<values_in_keys<16>>();
    const tape says = make_tape(of, kind::uniform, markup::pairs, tokens, 33, seed);
    player_of<values_in_keys<16>, policy_type> own(of, policy, limits_for(tokens));
    own.open(says);
    play_wildly(own, policy, seed);
    for (const engine_layout& lies : {layouts[0], layouts[1], layouts[2]}) {
      CAPTURE(lies.name());
      layout_of_engines = lies;
      player<policy_type, float, device_engine<policy_type, key_dim, values_in_keys<16>>> engine(of, policy,
                                                                                                 limits_for(tokens));
      engine.open(says);
      play_wildly(engine, policy, seed);
      REQUIRE(difference(own.at(0).log, engine.at(0).log) == "");
    }
  };
  check(small::quest, 131);
  ZOOMR_NIGHTLY(check(small::full, 141));
}

TEST_CASE("there and back between host and device, all is as before") {
  const auto check = [](const auto& policy, auto values, std::uint64_t seed) {
    using values_type = decltype(values);
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    constexpr shape of = model_of<values_type>();
    const tape says = make_tape(of, kind::uniform, markup::pairs, tokens, 33, seed);
    player<policy_type> alone(of, policy, limits_for(tokens)), moved(of, policy, limits_for(tokens, 2));
    player_of<values_type, policy_type> device(of, policy, limits_for(tokens));
    alone.open(says), moved.open(says), device.open(says);
    device.cache.cache().close(device.at(0).seq);
    for (bool on_host = true; !alone.done(); on_host = !on_host) {
      for (index_t step = 0; step < 5 && !alone.done(); ++step) {
        const index_t now = alone.tokens();
        const part next =
            now < 33 ? part{0, says.between(now, std::min(33, now + 11)), now + 11 >= 33} : alone.next(0, 3);
        alone.play({next});
        on_host ? moved.play({next}) : device.play({next});
      }
      if (on_host) {
        device.at(0).seq = zoomr::to_device(moved.cache, moved.at(0).seq, device.cache.cache(), zoomr::stream_ref{});
        device.at(0).log = moved.at(0).log;
        moved.cache.close(moved.at(0).seq);
      } else {
        moved.at(0).seq = zoomr::to_host(device.cache.cache(), device.at(0).seq, moved.cache, zoomr::stream_ref{});
        moved.at(0).log = device.at(0).log;
        device.cache.close(device.at(0).seq);
        const state_digest now = digest_of(moved.cache, moved.at(0).seq);
        const state_digest stayed = digest_of(alone.cache, alone.at(0).seq);
        for (const auto what : {state_digest::tokens, state_digest::details, state_digest::summaries}) {
          REQUIRE(now.of[what] == stayed.of[what]);
        }
      }
    }
  };
  check(small::quest, values_in_keys<16>{}, 111);
  ZOOMR_NIGHTLY(check(small::h2o, values_apart<16>{}, 121));
}

TEST_CASE("bytes are those of the widths, and another shape than the template's is refused") {
  check_bytes<values_in_keys<16>>();
  check_bytes<values_apart<16>>();
  using cache_type =
      zoomr::device_cache<std::remove_const_t<decltype(small::full)>, float, key_dim, readers, values_in_keys<16>>;
  for (const shape& other : {shape{2, 4, 2, key_dim}, shape{2, 4, 2, key_dim, 16}, shape{2, 4, 2, key_dim, 8, true}}) {
    CHECK(sentence_of([&] { cache_type::bytes(other, small::full, limits_for(tokens)); }) ==
          "zoomr: device_cache: the model's values must be as wide, and lie, as the template says");
  }
}

}  // namespace zoomr_test

// SPDX-License-Identifier: Apache-2.0
// Sequences that move between the caches of host and device: in the middle of a text, and back, nothing shows it.
#include <cache/device/device_against_host.hpp>
#include <cache/device/tiers/arena_limits.hpp>
#include <cache/support/conversations.hpp>
#include <cache/support/small_policies.hpp>
#include <support/nightly.hpp>
#include <support/state_digest.hpp>
#include <zoomr/device_transfer.cuh>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

/// The text goes on in the other cache every so many steps: what each token gets is what it gets in one cache alone.
template <index_t HeadDim = 8, class Policy, class DevicePolicy>
void check_moves(const Policy& policy, const DevicePolicy& on_device, const zoomr::config& limits, index_t prompt,
                 std::uint64_t seed) {
  CAPTURE(seed);
  dice random(seed);
  constexpr shape of{2, 4, 2, HeadDim};
  tape says = make_tape(of, kind::uniform, markup::pairs, tokens, prompt, seed);
  if (!frees_pages(policy) && seed % 2 == 0) says.later_prompts = {{52, 66}, {70, 71}};
  zoomr::config larger = limits_for(tokens, 2);
  larger.logits = limits.logits;
  player<Policy> alone(of, policy, larger), host(of, policy, larger);
  player<DevicePolicy, float, device_as_host<DevicePolicy, float, HeadDim, 2>> device(of, on_device, limits);
  alone.open(says), host.open(says), device.open(says);
  device.cache.cache().close(device.at(0).seq);
  bool is_on_host = true;
  while (!alone.done()) {
    const index_t now = alone.tokens();
    // In chunks that depend on nothing but the text; drafts of three.
    const part next = part_of(says, 0, now, now < prompt ? 11 : says.in_prompt(now) ? 5 : 3);
    alone.play({next});
    if (is_on_host) {
      host.play({next});
    } else {
      device.play({next});
    }
    if (random.chance(40)) {
      if (is_on_host) {
        device.at(0).seq = zoomr::to_device(host.cache, host.at(0).seq, device.cache.cache(), zoomr::stream_ref{});
        device.at(0).log = host.at(0).log;
        host.cache.close(host.at(0).seq);
      } else {
        host.at(0).seq = zoomr::to_host(device.cache.cache(), device.at(0).seq, host.cache, zoomr::stream_ref{});
        host.at(0).log = device.at(0).log;
        device.cache.close(device.at(0).seq);
        state_digest moved = digest_of(host.cache, host.at(0).seq), stayed = digest_of(alone.cache, alone.at(0).seq);
        moved.of[state_digest::pages] = stayed.of[state_digest::pages] = 0;  // it has others
        const bool lacks_sums = now >= prompt && !says.later_prompts.empty() && now >= says.later_prompts[0].first;
        if (limits.rollback_tokens < 24 || lacks_sums) {  // less of it is remembered
          for (const auto part :
               {state_digest::tokens, state_digest::remembered, state_digest::query_sums, state_digest::log}) {
            moved.of[part] = stayed.of[part] = 0;
          }
        }
        moved.of[state_digest::accounts] = stayed.of[state_digest::accounts] = 0;  // a device keeps no statistics
        for (const auto part : {state_digest::query_sums, state_digest::active, state_digest::log}) {
          if (policy.zone.dense_layers > 0) moved.of[part] = stayed.of[part] = 0;  // nobody reads those of dense layers
        }
        const auto id = static_cast<std::size_t>(host.at(0).seq.id);
        if (zoomr::inspection::core(host.cache).states[id].log.dropped()) {  // a device keeps fewer choices
          moved.of[state_digest::log] = stayed.of[state_digest::log] = 0;
        }
        REQUIRE(moved.difference(stayed) == "");
      }
      is_on_host = !is_on_host;
    }
    const index_t after = alone.tokens();
    index_t ended = prompt;
    for (const zoomr::token_range& later : says.later_prompts) ended = after > later.first ? later.last : ended;
    const index_t back = std::max(ended, least_rollback(policy, ended, after));
    if (after > prompt + 10 && random.chance(10) && back < after) {
      const index_t to = std::max(back, after - random.between(1, 9));
      alone.rollback(0, to);
      is_on_host ? host.rollback(0, to) : device.rollback(0, to);
    }
  }
  compare(alone.at(0).log, is_on_host ? host.at(0).log : device.at(0).log, HeadDim);
}

template <class Policy>
void check_moves(const Policy& policy, std::uint64_t seed) {
  check_moves(policy, policy, limits_for(tokens, 2), 37, seed);
  zoomr::config smaller = limits_for(tokens, 1);  // of other sizes than the host's
  smaller.max_segments = 70, smaller.pool_tokens = tokens + 8;
  check_moves(policy, policy, smaller, 21, seed + 100);
  smaller.rollback_tokens = 12;
  check_moves(policy, policy, smaller, 40, seed + 200);
}

}  // namespace

TEST_CASE("sequences of policies that choose move, with choices that stay active") {
  check_moves(small::full, 1);
  check_moves(small::quest, 2);
  ZOOMR_NIGHTLY(check_moves(small::zoomr_one_pass, 3));
  check_moves(small::zoomr_second_pass, 4);
  ZOOMR_NIGHTLY(check_moves(small::zoomr_focus, 5));
  ZOOMR_NIGHTLY(check_moves(small::sentence_box, 6));
  check_moves(small::by_kv_head, 7);
  check_moves(with(small::by_kv_head, [](auto& p) { p.zone.dense_layers = 1; }), 8);
  ZOOMR_NIGHTLY(check_moves(small::arkvale, 9));
  check_moves(small::zoomr_voters, 10);
  ZOOMR_NIGHTLY(check_moves(small::sentence_voters, 11));
}

TEST_CASE("summaries whose numbers a device keeps in another order move") {
  for (const std::uint64_t seed : {31u, 32u}) {
    check_moves<64>(small::quest, small::quest, limits_for(tokens, 2), 37, seed);
    ZOOMR_NIGHTLY(check_moves<96>(small::sentence_kv, small::sentence_kv, limits_for(tokens, 2), 40, seed));
  }
  ZOOMR_NIGHTLY(const auto in_8_bits = with_index<zoomr::float8>(small::quest));
  ZOOMR_NIGHTLY(check_moves<64>(in_8_bits, in_8_bits, limits_for(tokens, 2), 37, 33));
}

TEST_CASE("sequences of policies that evict move, with sums and queries, or without pages that nobody reaches") {
  check_moves(small::snapkv, 11);
  ZOOMR_NIGHTLY(check_moves(small::sentence_kv, 12));
  ZOOMR_NIGHTLY(check_moves(with_index<zoomr::float8>(small::sentence_kv), 18));
  check_moves(small::h2o, 13);
  ZOOMR_NIGHTLY(check_moves(small::r_kv, 14));
  ZOOMR_NIGHTLY(check_moves(small::pinned_prompt, 15));
  ZOOMR_NIGHTLY(check_moves(small::evicting, 16));
  ZOOMR_NIGHTLY(check_moves(small::summary_only, 17));
  zoomr::config limits = limits_for(tokens, 2);
  limits.logits.window = 18;
  check_moves(small::full, small::full, limits, 37, 19);
}

TEST_CASE("to and from the tiers of a device") {
  const auto check = [](const auto& policy, std::uint64_t seed) {
    const auto tiered = with_placement(policy, zoomr::tiered<>{});
    check_moves(policy, tiered, arena_limits(tiered, limits_for(tokens, 2), 9), 37, seed);
  };
  check(small::quest, 21);
  ZOOMR_NIGHTLY(check(small::h2o, 22));
}

TEST_CASE("a sequence that has no room, or comes to another policy, model or scale, stays where it is") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, tokens, 30, 5);
  player<std::remove_const_t<decltype(small::quest)>> host(model, small::quest, limits_for(tokens));
  host.open(says);
  host.play_plainly(0, 60);
  const auto refused = [&](const auto& policy, auto change, const shape& of = model) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    zoomr::config limits = limits_for(tokens);
    change(limits);
    device_player<policy_type> device(of, policy, limits);
    const state_digest before = digest_of(host.cache, host.at(0).seq);
    const std::string why =
        sentence_of([&] { zoomr::to_device(host.cache, host.at(0).seq, device.cache.cache(), zoomr::stream_ref{}); });
    REQUIRE(digest_of(host.cache, host.at(0).seq).difference(before) == "");
    if (!why.empty()) device.open(says);  // the only place is free still
    return why;
  };
  const auto nothing = [](zoomr::config&) {};
  CHECK(refused(small::quest, nothing) == "");
  CHECK(refused(small::arkvale, nothing) == "zoomr: a sequence moves only between caches of the same policy");
  CHECK(refused(small::quest, nothing, shape{3, 4, 2, 8}) ==
        "zoomr: a sequence moves only between caches of the same model");
  CHECK(refused(small::quest, [](auto& c) { c.key_scale.all = 2.0f; }) ==
        "zoomr: a sequence moves only between caches whose keys and values have the same scales");
  CHECK(refused(small::quest, [](auto& c) { c.logits.soft_cap = 30.0f; }) ==
        "zoomr: a sequence moves only between caches of the same config.logits");
  CHECK(refused(small::quest, [](auto& c) { c.max_tokens = 50, c.max_segments = 40; }) ==
        "zoomr: a sequence cannot move: it has 60 tokens, config.max_tokens is 50");
  CHECK(refused(small::quest, [](auto& c) { c.max_segments = 3; }).find("segments, there is room for 3") !=
        std::string::npos);
  CHECK(refused(small::quest, [](auto& c) { c.pool_tokens = 48; }) ==
        "zoomr: a sequence cannot move: it needs 4 pages of 16 tokens, 3 are free; raise config.pool_tokens");
}

TEST_CASE("a sequence with spans stays on the host where a device would evict their tokens") {
  tape says = make_tape(model, kind::uniform, markup::sentences, tokens, 30, 5);
  using snapkv_type = std::remove_const_t<decltype(small::snapkv)>;
  player<snapkv_type> host(model, small::snapkv, limits_for(tokens));
  device_player<snapkv_type> device(model, small::snapkv, limits_for(tokens));
  const auto why = [&] {
    host.cache.close(host.voices.back().seq);
    host.open(says);
    host.play({{static_cast<index_t>(host.voices.size()) - 1, says.between(0, 20)}});
    return sentence_of(
        [&] { zoomr::to_device(host.cache, host.voices.back().seq, device.cache.cache(), zoomr::stream_ref{}); });
  };
  host.open(says);
  says.spans = {{{3, 7}}};
  CHECK(why() == "zoomr: a sequence with spans moves to a device only where the policy evicts nothing by attention");
  says.spans.clear();
  CHECK(why() == "");
}

}  // namespace zoomr_test

// SPDX-License-Identifier: Apache-2.0
// Forks on the device: each goes on as if it were alone, whatever the others write.
#include <cache/device/device_against_host.hpp>
#include <cache/device/tiers/arena_limits.hpp>
#include <cache/support/small_policies.hpp>
#include <support/nightly.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

constexpr index_t most_voices = 4;

/// Which of the next steps are made, and what they do, from the same dice on host and device.
template <class Player, class Policy>
void play_forks(Player& plays, const Policy& policy, const tape& first, std::vector<tape>& texts, std::uint64_t seed) {
  dice random(seed);
  texts.reserve(most_voices);
  plays.open(first);
  std::vector<index_t> longest{0};
  index_t rollbacks = 0;
  const auto fork_one = [&](index_t v) {
    const tape& says = *plays.at(v).says;
    texts.push_back(with_other_end(says, plays.tokens(v), says.prompt, seed + texts.size() + 1));
    fork(plays, v, texts.back());
    longest.push_back(longest[static_cast<std::size_t>(v)]);
  };
  const auto all_done = [&] {
    for (index_t v = 0; v < static_cast<index_t>(plays.voices.size()); ++v) {
      if (!plays.done(v)) return false;
    }
    return true;
  };
  while (!all_done()) {
    std::vector<part> parts;
    for (index_t v = 0; v < static_cast<index_t>(plays.voices.size()); ++v) {
      if (plays.done(v) || random.chance(35)) continue;
      const tape& says = *plays.at(v).says;
      const index_t now = plays.tokens(v);
      parts.push_back(now < says.prompt ? next_chunk(random, says, v, now) : plays.next(v, random.between(1, 4)));
    }
    if (!parts.empty()) {
      if (random.chance(25)) {
        plays.play(parts, random.one_of(std::array{fate::dropped_at_once, fate::dropped_at_once,
                                                   fate::dropped_between_layers, fate::dropped_after_pass}));
      }
      if (random.chance(90)) plays.play(parts);
    }
    for (index_t v = 0; v < static_cast<index_t>(plays.voices.size()); ++v) {
      auto& most = longest[static_cast<std::size_t>(v)];
      most = std::max(most, plays.tokens(v));
      const index_t prompt = plays.at(v).says->prompt, now = plays.tokens(v);
      const index_t to =
          std::max({prompt, most - undo, now - random.between(1, 20), least_rollback(policy, prompt, most)});
      const bool goes_back = random.chance(8) && now > prompt && to < now && rollbacks < most_rollbacks;
      if (goes_back) ++rollbacks, plays.rollback(v, to);
    }
    const auto voices = static_cast<index_t>(plays.voices.size());
    if (voices < most_voices && plays.tokens(0) > 8 && random.chance(25)) fork_one(random.between(0, voices - 1));
  }
}

template <class Policy>
void check_forks(const Policy& policy, std::uint64_t seed, index_t drafts = 6, index_t window = 0) {
  CAPTURE(seed);
  const tape says = make_tape(model, kind::uniform, markup::pairs, tokens, 37, seed);
  zoomr::config limits = limits_for(tokens, most_voices);
  limits.max_draft_tokens = drafts;
  limits.logits.window = window;
  player<Policy> host(model, policy, limits);
  device_player<Policy> device(model, policy, limits);
  device.cache.uploads_early = seed % 2 == 0;
  std::vector<tape> of_host, of_device;
  play_forks(host, policy, says, of_host, seed);
  play_forks(device, policy, says, of_device, seed);
  REQUIRE(of_host.size() == most_voices - 1);
  for (index_t v = 0; v < most_voices; ++v) {
    CAPTURE(v);
    compare(host.at(v).log, device.at(v).log);
  }
}

}  // namespace

TEST_CASE("forks of policies that choose: the index, and choices that stay active") {
  check_forks(small::quest, 1);
  ZOOMR_NIGHTLY(check_forks(small::zoomr_one_pass, 2));
  check_forks(small::zoomr_second_pass, 3);
  ZOOMR_NIGHTLY(check_forks(small::sentence_box, 4));
  check_forks(small::by_kv_head, 5);
  check_forks(with(small::by_kv_head, [](auto& p) { p.aggregate.per = zoomr::scope::sequence; }), 6);
  ZOOMR_NIGHTLY(check_forks(with_index<zoomr::float8>(small::quest), 15));
  check_forks(small::zoomr_voters, 16);
  ZOOMR_NIGHTLY(check_forks(small::sentence_voters, 17));
}

TEST_CASE("forks of policies that evict: pages to which tokens move, sums and remembered queries") {
  check_forks(small::snapkv, 7);
  ZOOMR_NIGHTLY(check_forks(small::sentence_kv, 8));
  check_forks(small::h2o, 9, 1);
  ZOOMR_NIGHTLY(check_forks(small::r_kv, 10));
  ZOOMR_NIGHTLY(check_forks(small::evicting, 11));
  ZOOMR_NIGHTLY(check_forks(small::pinned_prompt, 12));
}

TEST_CASE("an open sequence becomes what another is, and its handle stays") {
  const tape says = make_tape(model, kind::uniform, markup::pairs, tokens, 37, 5);
  const tape end = with_other_end(says, 60, says.prompt, 7),
             other = make_tape(model, kind::peaked, markup::sentences, tokens, 30, 6);
  const auto check_into = [&](const auto& plain, const auto& policy, const zoomr::config& limits) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    device_player<policy_type> device(model, policy, limits);
    device.open(says), device.open(other);
    device.play_plainly(0, 60), device.play_plainly(1, 50);
    const zoomr::sequence from = device.at(0).seq, into = device.at(1).seq;
    device.cache.fork(from, into), device.cache.fork(into, into);
    device.at(1) = {into, &end, device.at(0).log};
    device.play_plainly(1), device.play_plainly(0);
    for (index_t v = 0; v < 2; ++v) {
      player<std::remove_cvref_t<decltype(plain)>> alone(model, plain, limits_for(tokens));
      alone.open(v == 0 ? says : end);
      alone.play_plainly();
      compare(alone.at(0).log, device.at(v).log);
    }
    const std::vector<token_id> ids{1};
    device.rollback(0, tokens - 1);
    const auto step = device.cache.cache().begin(from, view<const token_id>(ids));
    CHECK(sentence_of([&] { device.cache.fork(from, into); }) ==
          "zoomr: a step is in progress: commit or drop it first");
  };
  const zoomr::config limits = limits_for(tokens, 2);
  check_into(small::zoomr_second_pass, small::zoomr_second_pass, limits);
  check_into(small::h2o, small::h2o, limits);
  check_into(small::zoomr_voters, small::zoomr_voters, limits);
  const auto tiered = with_placement(small::quest, zoomr::tiered<>{});
  check_into(small::quest, tiered, arena_limits(tiered, limits, 9));
}

TEST_CASE("an eviction moves tokens into pages that others go on reading") {
  using policy_type = std::remove_const_t<decltype(small::snapkv)>;
  const tape says = make_tape(model, kind::uniform, markup::sentences, tokens, 70, 5);
  const tape end = with_other_end(says, 60, says.prompt, 7);
  device_player<policy_type> device(model, small::snapkv, limits_for(tokens, 2));
  device.open(says);
  device.play({{0, says.between(0, 60), false}});
  fork(device, 0, end);
  device.play_plainly(0);  // 33 tokens are left of the prompt
  device.play_plainly(1);
  for (index_t v = 0; v < 2; ++v) {  // a host's cache of its own, since forks of both are planned by the same code
    player<policy_type> alone(model, small::snapkv, limits_for(tokens));
    alone.open(v == 0 ? says : end);
    alone.play({{0, alone.at(0).says->between(0, 60), false}});
    alone.play_plainly();
    compare(alone.at(0).log, device.at(v).log);
  }
}

TEST_CASE("a fork that is made after the prompt's end has what another end of the prompt observes") {
  const auto check_second_end = [](const auto& policy) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    constexpr index_t prompt = 40;  // of which tokens are evicted; where it ends first none are
    const tape says = make_tape(model, kind::uniform, markup::sentences, tokens, prompt, 5);
    device_player<policy_type> device(model, policy, limits_for(tokens, 2));
    device.open(says);
    device.play({{0, says.between(0, 36), true}});
    fork(device, 0, says);
    player<policy_type> alone(model, policy, limits_for(tokens));
    alone.open(says);
    alone.play_plainly();
    for (const index_t v : {1, 0}) {
      CAPTURE(v);
      device.rollback(v, 35);
      device.play({{v, says.between(35, 36), false}});
      device.play_plainly(v);
      compare(alone.at(0).log, device.at(v).log);
    }
  };
  const auto few = [](const auto& policy) { return with(policy, [](auto& p) { p.evict.tokens = 38; }); };
  check_second_end(few(small::snapkv));
  ZOOMR_NIGHTLY(check_second_end(few(small::sentence_kv)));
  ZOOMR_NIGHTLY(check_second_end(few(small::r_kv)));
}

TEST_CASE("forks of policies that give up pages, and that do nothing at all") {
  check_forks(small::full, 13);
  ZOOMR_NIGHTLY(check_forks(small::summary_only, 14));
  check_forks(small::full, 15, 6, 20);
}

TEST_CASE("forks over tiers: a copy comes where the arena still had another page") {
  const auto tiered = [](const auto& policy) { return with_placement(policy, zoomr::tiered<>{}); };
  const auto check = [&](const auto& plain, std::uint64_t seed) {
    CAPTURE(seed);
    const auto policy = tiered(plain);
    using policy_type = std::remove_const_t<decltype(policy)>;
    const tape says = make_tape(model, kind::uniform, markup::pairs, tokens, 37, seed);
    zoomr::config limits = limits_for(tokens, most_voices);
    player<std::remove_cvref_t<decltype(plain)>> host(model, plain, limits);
    device_player<policy_type> device(model, policy, arena_limits(policy, limits, 9));
    std::vector<tape> of_host, of_device;
    play_forks(host, plain, says, of_host, seed);
    play_forks(device, policy, says, of_device, seed);
    for (index_t v = 0; v < most_voices; ++v) compare(host.at(v).log, device.at(v).log);
  };
  check(small::quest, 15);
  ZOOMR_NIGHTLY(check(small::h2o, 16));
}

TEST_CASE("over tiers a copy counts where the arena still has what its page held before") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, tokens, 30, 5);
  const tape other = make_tape(model, kind::peaked, markup::sentences, tokens, 30, 6);
  const tape end = with_other_end(says, 41, says.prompt, 7);
  const auto play = [&](auto& plays) {
    plays.open(says), plays.open(other);
    plays.play_plainly(0, 41), plays.play_plainly(1, 70);
    plays.cache.close(plays.at(1).seq);
    plays.voices[1] = {plays.cache.fork(plays.at(0).seq), &end, plays.at(0).log};
    plays.play_plainly(1), plays.play_plainly(0);
  };
  const auto policy = with_placement(small::full, zoomr::tiered<>{});
  player<std::remove_cvref_t<decltype(small::full)>> host(model, small::full, limits_for(tokens, 2));
  device_player<std::remove_const_t<decltype(policy)>> device(model, policy,
                                                              arena_limits(policy, limits_for(tokens, 2), 40));
  play(host), play(device);
  for (index_t v = 0; v < 2; ++v) compare(host.at(v).log, device.at(v).log);
}

TEST_CASE("a full pool refuses a step that would have to copy, and changes nothing") {
  using cache_type = zoomr::device_cache<std::remove_const_t<decltype(small::full)>, float, 8, 2>;
  const tape says = make_tape(model, kind::uniform, markup::sentences, 64, 20, 5);
  zoomr::config limits = limits_for(64, 2);
  limits.pool_tokens = 2 * zoomr::page_tokens;
  device_array<std::byte> memory(cache_type::bytes(model, small::full, limits), std::byte{0xff});
  cache_type cache(model, small::full, limits, memory.data(), zoomr::stream_ref{});
  const zoomr::sequence one = cache.open();
  device_array<float> numbers(64 * 4 * 8, 0.5f), out(64 * 4 * 8, 0.0f);
  const auto pass = [&](zoomr::sequence seq, index_t first, index_t last, bool ends) {
    cache.wait();
    const std::vector<token_id> ids = says.between(first, last);
    auto step = cache.begin(seq, view<const token_id>(ids), ends);
    step.start(zoomr::stream_ref{});
    for (index_t layer = 0; layer < model.layers; ++layer) {
      const view<const float, 3> rows(numbers.data(), {last - first, 2, 8});
      step.append(layer, rows, rows, zoomr::stream_ref{});
      step.attend(layer, view<const float, 3>(numbers.data(), {last - first, 4, 8}),
                  view<float, 3>(out.data(), {last - first, 4, 8}), {}, zoomr::stream_ref{});
    }
    step.commit(last - first, zoomr::stream_ref{});
  };
  pass(one, 0, 20, true);  // both pages
  const zoomr::sequence other = cache.fork(one, zoomr::stream_ref{});
  CHECK(cache.tokens(other) == 20);
  for (const zoomr::sequence seq : {one, other}) {
    const std::string why = sentence_of([&] { pass(seq, 20, 21, false); });
    CHECK(why == "zoomr: the step needs 1 pages of 16 tokens, 0 are free; raise config.pool_tokens");
    CHECK(cache.tokens(seq) == 20);
  }
  CHECK(sentence_of([&] { cache.fork(one, zoomr::stream_ref{}); }).find("config.max_sequences") != std::string::npos);
  cache.close(one);
  pass(other, 20, 21, false);  // the page is its own now
  CHECK(cache.tokens(other) == 21);
}

}  // namespace zoomr_test

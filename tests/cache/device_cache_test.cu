// SPDX-License-Identifier: Apache-2.0
// The device cache plays what the host's plays: every query attends the same positions, and gets the same output but
// for the order of summation.
#include <cache/device_driving.hpp>
#include <cache/small_policies.hpp>

#include <doctest/doctest.h>

#include "support/tolerance.hpp"

namespace zoomr_test {
namespace {

constexpr index tokens = 96;
constexpr index undo = 24;
constexpr shape model{2, 4, 2, 8};

// SentenceKV without retention: the running mean of queries asks.
inline constexpr auto running_sentences =
    zoomr::compose(zoomr::sentences{.longest = 20}, zoomr::key_mean{}, zoomr::mean_dot{}, zoomr::running_mean{},
                   zoomr::fill_budget{.tokens = 40}, zoomr::every_token{.everything_until = 1},
                   zoomr::zones{.sinks = 4, .recent = 6, .open = 30});
inline constexpr auto each_head = with(running_sentences, [](auto& p) { p.agree.per = zoomr::scope::head; });
inline constexpr auto in_16_bits = zoomr::compose(
    zoomr::fixed_pages{.longest = 5}, zoomr::stored_as<zoomr::bfloat16>(zoomr::key_box{}), zoomr::box_bound{},
    zoomr::best_segments{.segments = 4}, zoomr::every_token{}, zoomr::zones{.sinks = 4, .recent = 6});
inline constexpr auto typical_in_16_bits = zoomr::compose(
    zoomr::sentences{.longest = 9}, zoomr::stored_as<zoomr::float16>(zoomr::typical_keys{.keys = 3}), zoomr::mean_dot{},
    zoomr::fill_budget{.tokens = 30}, zoomr::boundaries{}, zoomr::zones{.sinks = 4, .recent = 6});
inline constexpr auto each_layer = with(small::quest, [](auto& p) { p.agree.per = zoomr::scope::layer; });

template <class Policy>
using device_player = player<Policy, float, device_as_host<Policy, float, 8, 2>>;

/// The prompt in chunks, then single tokens, drafts, steps that are dropped, and rollbacks.
template <class Player>
void play_wildly(Player& plays, std::uint64_t seed) {
  dice random(seed);
  const tape& says = *plays.at(0).says;
  index longest = 0;
  while (!plays.done()) {
    const index now = plays.tokens();
    longest = std::max(longest, now);
    if (now < says.prompt) {
      const index count = random.between(1, says.prompt - now);
      plays.play({{0, says.between(now, now + count), now + count == says.prompt}});
      continue;
    }
    const auto until = random.chance(12)
                           ? random.one_of(std::array{fate::dropped_at_once, fate::dropped_between_layers,
                                                      fate::dropped_after_pass, fate::dropped_after_again})
                           : fate::committed;
    part draft = plays.next(0, random.chance(40) ? random.between(2, 6) : 1);
    if (random.chance(40)) draft.ids.back() = random.chance(50) ? delimiter_id : random.between(1, 30);
    plays.play({draft}, until);
    longest = std::max(longest, plays.tokens());
    if (random.chance(15) &&
        plays.tokens() + 3 <= tokens) {  // other text, which closes other segments, is committed and undone
      const index before = plays.tokens();
      for (index count = random.between(1, 3); count > 0; --count) {
        plays.play({{0, {random.chance(50) ? delimiter_id : random.between(1, 30)}, false, true}});
        longest = std::max(longest, plays.tokens());
      }
      plays.rollback(0, std::max(before, longest - undo));
      if (plays.tokens() > before) throw std::logic_error("a detour went too far to be undone");
    }
    const index to = std::max({says.prompt, longest - undo, plays.tokens() - random.between(0, undo)});
    if (random.chance(10)) plays.rollback(0, std::min(to, plays.tokens()));
  }
}

/// @param rounding  what outputs may differ by, beyond the order of summation
void compare(const result_log& host, const result_log& device, index head_dim = 8, double rounding = 0.0) {
  REQUIRE(host.size() == device.size());
  for (const auto& [place, expected] : host) {
    CAPTURE(place.first);
    CAPTURE(place.second);
    const token_result& got = device.at(place);
    REQUIRE(got.attended == expected.attended);
    REQUIRE(got.out.numbers.size() == expected.out.numbers.size());
    // values lie in [-1, 1]; logits are sums of at most head_dim products below 3.3 * 2.3
    const double logit = 3.3 * 2.3 * std::sqrt(static_cast<double>(head_dim));
    const double allowed = 2 * tolerance::end_to_end(head_dim, logit, tokens);
    for (std::size_t i = 0; i < got.out.numbers.size(); ++i) {
      REQUIRE(tolerance::within(static_cast<double>(got.out.numbers[i]), static_cast<double>(expected.out.numbers[i]),
                                allowed + rounding));
    }
    for (std::size_t i = 0; i < got.lse.numbers.size(); ++i) {
      REQUIRE(tolerance::within(static_cast<double>(got.lse.numbers[i]), static_cast<double>(expected.lse.numbers[i]),
                                (1 + logit) * allowed));
    }
  }
}

template <class Policy>
void check(const Policy& policy, kind look, markup text, std::uint64_t seed, bool fixed = false) {
  INFO("seed ", seed);
  const tape says = make_tape(model, look, text, tokens, static_cast<index>(20 + seed * 7 % 20), seed);
  zoomr::config limits = limits_for(tokens);
  limits.dense_below = seed % 3 == 0 && !policy.store.evicts ? 47 : 0;
  player<Policy> host(model, policy, limits);
  device_player<Policy> device(model, policy, limits);
  device.cache.fixed = fixed;
  host.open(says);
  device.open(says);
  play_wildly(host, seed);
  play_wildly(device, seed);
  CHECK(host.second_passes == device.second_passes);
  compare(host.at(0).log, device.at(0).log);
}

/// Three sequences: prompts of short sentences one after the other in chunks, then steps with any of them, in which a
/// prompt's chunk may stand beside drafts.
template <class Player>
void play_together(Player& plays, std::uint64_t seed) {
  dice random(seed);
  const auto next_of = [&](index v) {
    const tape& says = *plays.at(v).says;
    const index now = plays.tokens(v);
    if (now >= says.prompt) return plays.next(v, random.between(1, 3));
    const index count = random.between(1, says.prompt - now);
    return part{v, says.between(now, now + count), now + count == says.prompt};
  };
  for (index v = 0; v < 2; ++v) plays.play({next_of(v)});
  for (;;) {
    std::vector<part> parts;
    for (index v = 0; v < 3; ++v) {
      if (!plays.done(v) && random.chance(70)) parts.push_back(next_of(v));
    }
    if (!parts.empty()) plays.play(parts);
    if (plays.done(0) && plays.done(1) && plays.done(2)) return;
  }
}

template <class Policy>
void check_together(const Policy& policy, std::uint64_t seed) {
  INFO("seed ", seed);
  zoomr::config limits = limits_for(60, 3);
  limits.step_tokens = 48;  // fewer than all prompts close
  player<Policy> host(model, policy, limits);
  device_player<Policy> device(model, policy, limits);
  std::vector<tape> says;
  for (std::uint64_t v = 0; v < 3; ++v) {
    says.push_back(make_tape(model, kind::peaked, v == 2 ? markup::pairs : markup::sentences, 60, 30, seed + v));
  }
  for (const tape& one : says) host.open(one), device.open(one);
  play_together(host, seed);
  play_together(device, seed);
  for (index v = 0; v < 3; ++v) compare(host.at(v).log, device.at(v).log);
}

/// Three texts of four; the last is fed as a graph would be.
template <class Policy>
void check_texts(const Policy& policy, std::uint64_t first = 1) {
  constexpr kind looks[] = {kind::uniform, kind::peaked, kind::ties};
  constexpr markup texts[] = {markup::pairs, markup::stray, markup::sentences, markup::summaries_alone};
  for (std::uint64_t seed = first; seed < first + 3; ++seed) {
    check(policy, looks[seed % 3], texts[seed % 4], seed, seed == first + 2);
  }
}

}  // namespace

TEST_CASE("full and window") {
  check_texts(small::full);
  check_texts(small::window);
}
TEST_CASE("zoomr: votes of all layers, stale") { check_texts(small::zoomr); }
TEST_CASE("zoomr_mass: mass of all layers, asked again") { check_texts(small::zoomr_mass); }
TEST_CASE("zoomr_focus: each layer alone, in the same pass") { check_texts(small::zoomr_focus); }
TEST_CASE("zoomr_follow: each layer alone, at every token") { check_texts(small::zoomr_follow); }
TEST_CASE("sentence_box") { check_texts(small::sentence_box); }
TEST_CASE("sentences by the running mean of queries, each KV head or each head alone") {
  check_texts(running_sentences);
  check(each_head, kind::peaked, markup::sentences, 5);
}
TEST_CASE("quest, and for each layer") {
  check_texts(small::quest);
  check(each_layer, kind::ties, markup::stray, 6);
}
TEST_CASE("arkvale and shadowkv") {
  check_texts(small::arkvale);
  check_texts(small::shadowkv, 2);
}
TEST_CASE("infllm: a few typical keys stand for a segment") { check_texts(small::infllm); }
TEST_CASE("an index of 16 bits") {
  check_texts(in_16_bits);
  check(typical_in_16_bits, kind::ties, markup::sentences, 7);
  check(typical_in_16_bits, kind::with_infinities, markup::sentences, 8);
}
TEST_CASE("on drift: for each KV head, each layer, each head") {
  check_texts(small::drifting);
  check(with(small::drifting, [](auto& p) { p.agree.per = zoomr::scope::layer, p.refresh.cosine = 0.8f; }),
        kind::uniform, markup::sentences, 9);
  check(with(small::drifting, [](auto& p) { p.agree.per = zoomr::scope::head, p.zone.dense_layers = 1; }),
        kind::uniform, markup::pairs, 10);
}
TEST_CASE("a mean of queries asks at the end of the prompt: that is the last one") {
  check(zoomr::compose(zoomr::sentences{.longest = 12}, zoomr::key_mean{}, zoomr::mean_dot{}, zoomr::running_mean{},
                       zoomr::fill_budget{.tokens = 30}, zoomr::boundaries{}, zoomr::zones{.sinks = 3, .recent = 6}),
        kind::uniform, markup::sentences, 11);
}
TEST_CASE("several sequences at once") {
  check_together(with(small::quest, [](auto& p) { p.segment.longest = 1; }), 1);
  check_together(small::zoomr_mass, 2);
  check_together(running_sentences, 3);
}
TEST_CASE("groups of 8 heads, whose queries have 16 bits: the same choices, attended to on tensor cores") {
  constexpr shape wide{2, 16, 2, 64};
  const auto check_wide = [&](const auto& policy, markup text, std::uint64_t seed) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    using zoomr::bfloat16;
    INFO("seed ", seed);
    // of these keys and queries 16 bits hold everything, so that all scores are the host's
    const tape says = make_tape(wide, kind::ties, text, tokens, 30, seed);
    player<policy_type, bfloat16> host(wide, policy, limits_for(tokens));
    player<policy_type, bfloat16, device_as_host<policy_type, bfloat16, 64, 8, bfloat16>> device(wide, policy,
                                                                                                 limits_for(tokens));
    host.open(says);
    device.open(says);
    play_wildly(host, seed);
    play_wildly(device, seed);
    compare(host.at(0).log, device.at(0).log, 64, tolerance::rounded_weights(7, tokens) + tolerance::rounded(7));
  };
  check_wide(small::quest, markup::sentences, 3);
  check_wide(small::zoomr_mass, markup::pairs, 4);
}
TEST_CASE("each head alone, its tokens split over blocks") {
  constexpr shape split{2, 4, 2, 64};  // a tile is 32 tokens
  using policy_type = std::remove_cvref_t<decltype(each_head)>;
  const tape says = make_tape(split, kind::peaked, markup::sentences, tokens, 30, 9);
  player<policy_type> host(split, each_head, limits_for(tokens));
  player<policy_type, float, device_as_host<policy_type, float, 64, 2>> device(split, each_head, limits_for(tokens));
  host.open(says);
  device.open(says);
  play_wildly(host, 9);
  play_wildly(device, 9);
  compare(host.at(0).log, device.at(0).log, 64);
}
TEST_CASE("summaries only") { check_texts(small::summary_only); }

}  // namespace zoomr_test

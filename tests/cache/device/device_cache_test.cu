// SPDX-License-Identifier: Apache-2.0
// The device cache plays what the host's plays: every query attends the same positions, and gets the same output but
// for the order of summation.
#include <cache/device/device_against_host.hpp>
#include <cache/support/model_logits.hpp>
#include <cache/support/small_policies.hpp>
#include <support/nightly.hpp>
#include <support/stride.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

// SentenceKV without eviction: the running mean of queries asks.
inline constexpr auto running_sentences =
    zoomr::compose(zoomr::sentences{.longest = 20}, zoomr::key_mean{}, zoomr::mean_dot{}, zoomr::running_mean{},
                   zoomr::fill_budget{.tokens = 40}, zoomr::every_token{.everything_until = 1},
                   zoomr::zones{.sinks = 4, .recent = 6, .open = 30});
inline constexpr auto each_head = with(running_sentences, [](auto& p) { p.aggregate.per = zoomr::scope::head; });
inline constexpr auto in_16_bits = zoomr::compose(
    zoomr::fixed_pages{.longest = 5}, zoomr::stored_as<zoomr::bfloat16>(zoomr::key_box{}), zoomr::box_bound{},
    zoomr::top_k{.segments = 4}, zoomr::every_token{}, zoomr::zones{.sinks = 4, .recent = 6});
inline constexpr auto cuboids_in_16_bits = zoomr::compose(
    zoomr::code_segments{.longest = 9, .shortest_block = 3}, zoomr::stored_as<zoomr::float16>(zoomr::key_cuboid{}),
    zoomr::box_bound{}, zoomr::fill_budget{.tokens = 30}, zoomr::boundaries{}, zoomr::zones{.sinks = 4, .recent = 6});
inline constexpr auto boxes_in_8_bits = with_index<zoomr::float8>(small::quest);
inline constexpr auto means_in_8_bits = with_index<zoomr::float8>(running_sentences);
inline constexpr auto each_layer = with(small::quest, [](auto& p) { p.aggregate.per = zoomr::scope::layer; });

std::uint64_t policies = 0;  // that were checked: the next one has another text

/// Three texts of four, or one, where a stride is wanted; the last is fed as a graph would be.
template <class Policy>
void check_texts(const Policy& policy, std::uint64_t first = 1) {
  constexpr kind looks[] = {kind::uniform, kind::peaked, kind::ties};
  constexpr markup texts[] = {markup::pairs, markup::stray, markup::sentences, markup::summaries_alone};
  const std::uint64_t only = first + policies++ % 3;
  for (std::uint64_t seed = first; seed < first + 3; ++seed) {
    if (stride() > 1 && seed != only) continue;
    check(policy, looks[seed % 3], texts[seed % 4], seed, seed == first + 2);
  }
}

}  // namespace

TEST_CASE("each preset that neither evicts nor reads keys") {
  for_each_preset([](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    if constexpr (!decltype(policy.evict)::observes && !reads_keys<policy_type>) check_texts(policy);
  });
}
TEST_CASE("zoomr_mass: a prompt of segments; a dense layer") {
  check_texts(small::zoomr_mass);
  check(with(small::zoomr_mass, [](auto& p) { p.zone.dense_layers = 1; }), kind::peaked, markup::pairs, 12);
}
TEST_CASE("models with a scale, caps and sinks of their own") {
  for (const model_rule& of : some_of(some_of(all_model_rules(model)))) {
    zoomr::logit_rule rule = of.rule();
    CAPTURE(of.name);
    check(small::zoomr_mass, kind::uniform, markup::pairs, 3, false, 0, rule);
    check(small::by_mass, kind::peaked, markup::sentences, 4, false, 0, rule);
    check(small::full, kind::with_infinities, markup::sentences, 5, true, 0, rule);
  }
}
TEST_CASE("layers with a sliding window, in the prompt and after it") {
  for (const index_t window : {1, 16, 33}) {
    zoomr::logit_rule rule;
    rule.window = window;
    CAPTURE(window);
    check(small::full, kind::uniform, markup::pairs, static_cast<std::uint64_t>(window), window == 16, 50, rule);
  }
  const model_rule of("all of them", model, 0.35f, 1.6f, true, true);
  zoomr::logit_rule rule = of.rule();
  rule.window = 21;
  check(small::summary_only, kind::uniform, markup::pairs, 4, false, 0, rule);
  check(small::zoomr_mass, kind::uniform, markup::pairs, 3, false, 0, rule);
  check(small::quest, kind::peaked, markup::sentences, 5, true, 0, rule);
}
TEST_CASE("each layer alone, at every token") { check_texts(small::focus_each_token); }
TEST_CASE("sentences by the running mean of queries, each KV head or each head alone") {
  check_texts(running_sentences);
  check(each_head, kind::peaked, markup::sentences, 5);
}
TEST_CASE("quest for each layer") { check(each_layer, kind::ties, markup::stray, 6); }
TEST_CASE("pages by the mass of their means") { check_texts(small::by_mass, 2); }
#if defined(ZOOMR_ALL_CHECKS)
TEST_CASE("an index of 16 bits") {
  check_texts(in_16_bits);
  check(cuboids_in_16_bits, kind::ties, markup::sentences, 7);
  check(cuboids_in_16_bits, kind::with_infinities, markup::sentences, 8);
}
#endif
TEST_CASE("an index of 8 bits, whose summaries have scales") {
  check_texts(boxes_in_8_bits);
  check(boxes_in_8_bits, kind::with_infinities, markup::sentences, 9);
  ZOOMR_NIGHTLY(check_texts(means_in_8_bits));
  ZOOMR_NIGHTLY(check(means_in_8_bits, kind::with_infinities, markup::sentences, 10));
  ZOOMR_NIGHTLY(check(with_index<zoomr::float8>(small::arkvale), kind::uniform, markup::sentences, 11));
  ZOOMR_NIGHTLY(check(with_index<zoomr::int8>(small::quest), kind::uniform, markup::sentences, 12));
  ZOOMR_NIGHTLY(check(with_index<zoomr::int8>(running_sentences), kind::with_infinities, markup::sentences, 13));
}
TEST_CASE("choices that stay active, by sums of queries: for each KV head, each layer, each head, all layers") {
  check_texts(small::by_kv_head);
  check(with(small::by_kv_head, [](auto& p) { p.aggregate.per = zoomr::scope::layer, p.refresh.at_most = 1; }),
        kind::uniform, markup::sentences, 9);
  check(with(small::by_kv_head, [](auto& p) { p.aggregate.per = zoomr::scope::head, p.zone.dense_layers = 1; }),
        kind::uniform, markup::pairs, 10);
  const auto for_all = with(small::by_kv_head, [](auto& p) { p.aggregate.per = zoomr::scope::sequence; });
  check(for_all, kind::uniform, markup::sentences, 9, true);
  check(for_all, kind::peaked, markup::stray, 10);
  check(with(for_all, [](auto& p) { p.zone.dense_layers = 1; }), kind::uniform, markup::sentences, 11);
}
#if defined(ZOOMR_ALL_CHECKS)
TEST_CASE("a mean of queries asks at the end of the prompt: that is the last one") {
  check(zoomr::compose(zoomr::sentences{.longest = 12}, zoomr::key_mean{}, zoomr::mean_dot{}, zoomr::running_mean{},
                       zoomr::fill_budget{.tokens = 30}, zoomr::boundaries{}, zoomr::zones{.sinks = 3, .recent = 6}),
        kind::uniform, markup::sentences, 11);
}
#endif
TEST_CASE("several sequences at once") {
  check_together(with(small::quest, [](auto& p) { p.segment.longest = 1; }), 1);
  check_together(small::zoomr_mass, 2);
  check_together(running_sentences, 3);
}
TEST_CASE("queries of 16 bits: the same choices, attended to on tensor cores, the tokens of a draft together") {
  const auto check_wide = [&](auto group, const auto& policy, markup text, std::uint64_t seed, bool biased = false,
                              index_t window = 0) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    using zoomr::bfloat16;
    constexpr shape wide{2, 2 * group(), 2, 64};
    INFO("seed ", seed);
    // of these keys and queries 16 bits hold everything, so that all scores are the host's
    const tape says = make_tape(wide, kind::ties, text, tokens, 30, seed);
    const std::vector<float> slopes(static_cast<std::size_t>(wide.heads), 0.0625f);
    zoomr::config limits = limits_for(tokens);
    if (biased) limits.logits.alibi_slopes = view<const float>(slopes);
    limits.logits.window = window;
    player<policy_type, bfloat16> host(wide, policy, limits);
    player<policy_type, bfloat16, device_as_host<policy_type, bfloat16, 64, group(), bfloat16>> device(wide, policy,
                                                                                                       limits);
    host.open(says);
    device.open(says);
    play_wildly(host, policy, seed);
    play_wildly(device, policy, seed);
    compare(host.at(0).log, device.at(0).log, 64, tolerance::rounded_weights(7, tokens) + tolerance::rounded(7));
  };
  check_wide(std::integral_constant<index_t, 8>{}, small::quest, markup::sentences, 3);
  ZOOMR_NIGHTLY(check_wide(std::integral_constant<index_t, 4>{}, small::quest, markup::sentences, 3));
  check_wide(std::integral_constant<index_t, 8>{}, small::quest, markup::sentences, 6, true);
  ZOOMR_NIGHTLY(check_wide(std::integral_constant<index_t, 8>{}, boxes_in_8_bits, markup::sentences, 7));
  check_wide(std::integral_constant<index_t, 4>{}, small::zoomr_mass, markup::pairs, 4);
  ZOOMR_NIGHTLY(check_wide(std::integral_constant<index_t, 1>{}, small::zoomr_focus, markup::pairs, 5));
  check_wide(std::integral_constant<index_t, 4>{}, small::zoomr_mass, markup::pairs, 8, true, 13);
}
TEST_CASE("each head alone, its tokens split over blocks") {
  constexpr shape split{2, 4, 2, 64};  // a tile is 32 tokens
  using policy_type = std::remove_cvref_t<decltype(each_head)>;
  const tape says = make_tape(split, kind::peaked, markup::sentences, tokens, 30, 9);
  player<policy_type> host(split, each_head, limits_for(tokens));
  player<policy_type, float, device_as_host<policy_type, float, 64, 2>> device(split, each_head, limits_for(tokens));
  host.open(says);
  device.open(says);
  play_wildly(host, each_head, 9);
  play_wildly(device, each_head, 9);
  compare(host.at(0).log, device.at(0).log, 64);
}

}  // namespace zoomr_test

// SPDX-License-Identifier: Apache-2.0
// Policies with parameters so small that in a text of a few hundred tokens everything happens: each preset, whatever
// its components are, and by name those that some test needs.
#pragma once

#include <zoomr/zoomr.hpp>

#include <algorithm>  // std::clamp, std::min
#include <concepts>   // std::same_as

namespace zoomr_test {

/// `preset` with changes: `with(presets::zoomr_one_pass, [](auto& p) { p.agree.k = 1; })`.
template <class Policy, class Change>
constexpr Policy with(Policy preset, Change change) {
  change(preset);
  return preset;
}

/// The policy with its index kept as `Number`.
template <class Number, class Policy>
constexpr auto with_index(const Policy& of) {
  return zoomr::compose(of.segment, of.evict, zoomr::stored_as<Number>(of.summarize), of.query, of.score, of.aggregate,
                        of.select, of.refresh, of.zone, of.placement);
}

/// The policy with smaller numbers, so that a preset needs none of its own here: segments, window and budgets of some
/// tokens, of which a few hundred do not fit in. What is unlimited stays so.
template <class Policy>
constexpr Policy shrunk(Policy policy) {
  constexpr auto lower = [](zoomr::index_t& number, zoomr::index_t most) {
    if (number != zoomr::unlimited) number = std::min(number, most);
  };
  auto& segment = policy.segment;
  auto& evict = policy.evict;
  auto& select = policy.select;
  auto& zone = policy.zone;
  if constexpr (requires { segment.prompt_piece; }) {  // thoughts, each with its summary
    lower(segment.longest, 40), lower(segment.prompt_piece, 13);
  } else if constexpr (!std::same_as<decltype(policy.segment), zoomr::unsegmented>) {
    lower(segment.longest, std::clamp(segment.longest / 3 + 1, 8, 20));
  }
  if constexpr (requires { evict.tokens; }) lower(evict.tokens, Policy::selects ? 60 : 35);
  if constexpr (requires { evict.queries; }) lower(evict.queries, 8);
  if constexpr (requires { evict.recent; }) lower(evict.recent, 9);
  if constexpr (requires { evict.every; }) lower(evict.every, evict.every / 16 + 6);
  if constexpr (requires { select.segments; }) lower(select.segments, 3);
  if constexpr (requires { select.tokens; }) lower(select.tokens, 40);
  if constexpr (requires { policy.aggregate.queries; }) lower(policy.aggregate.queries, 5);
  if constexpr (requires { policy.aggregate.question; }) lower(policy.aggregate.question, 11);
  if (zone.align > 1) {  // whole pages, which are smaller
    zone.sinks = zone.sinks / zone.align * segment.longest;
    zone.recent = zone.recent / zone.align * segment.longest;
    zone.align = segment.longest;
  } else {
    lower(zone.sinks, 4), lower(zone.recent, Policy::selects ? 7 : 19);
  }
  lower(zone.open, 30), lower(zone.dense_layers, 1);
  return policy;
}

namespace small {

namespace presets = zoomr::presets;

inline constexpr auto full = presets::full;
inline constexpr auto window = with(presets::window, [](auto& p) { p.zone.sinks = 3, p.zone.recent = 19; });
inline constexpr auto zoomr_one_pass = with(presets::zoomr_one_pass, [](auto& p) {
  p.segment.longest = 40, p.segment.prompt_piece = 13;
  p.zone.recent = 7;
});
inline constexpr auto zoomr_second_pass = with(zoomr_one_pass, [](auto& p) { p.refresh.second_pass = true; });
inline constexpr auto zoomr_mass = with(presets::zoomr_mass, [](auto& p) {
  p.segment.longest = 40, p.segment.prompt_piece = 13;
  p.zone.recent = 5, p.zone.prompt = false;
});
inline constexpr auto zoomr_focus = with(presets::zoomr_focus, [](auto& p) {
  p.segment.longest = 40, p.segment.prompt_piece = 13;
  p.zone.recent = 5;
});
inline constexpr auto summary_only = with(presets::summary_only, [](auto& p) {
  p.segment.longest = 40, p.segment.prompt_piece = 13;
  p.zone.recent = 11;
});
inline constexpr auto sentence_kv = with(presets::sentence_kv, [](auto& p) {
  p.segment.longest = 20;
  p.evict.tokens = 60, p.evict.queries = 8;
  p.select.tokens = 40;
  p.zone.sinks = 4, p.zone.recent = 6, p.zone.open = 30;
});
inline constexpr auto sentence_kv_published = with(sentence_kv, [](auto& p) { p.refresh.everything_until = 1; });
inline constexpr auto sentence_box =
    with(presets::sentence_box_with(40), [](auto& p) { p.segment.longest = 9, p.zone.recent = 6; });
inline constexpr auto quest = with(presets::quest, [](auto& p) {
  p.segment.longest = 8;
  p.select.segments = 4;
  p.zone.dense_layers = 1;
});
inline constexpr auto arkvale = with(presets::arkvale, [](auto& p) {
  p.segment.longest = 11;
  p.select.segments = 2;
  p.zone.sinks = 11, p.zone.recent = 22, p.zone.align = 11, p.zone.dense_layers = 1;
});
inline constexpr auto snapkv = with(presets::snapkv_with(33), [](auto& p) { p.evict.queries = 8; });
inline constexpr auto h2o = with(presets::h2o_with(37), [](auto& p) { p.evict.recent = 9, p.evict.every = 7; });
inline constexpr auto r_kv = with(presets::r_kv_with(35), [](auto& p) {
  p.evict.queries = 5, p.evict.every = 13, p.evict.pooling = 3;
  p.zone.sinks = 2;
});

// Beside the presets: choices in the same pass that stay active, and query sums that matter for them.
inline constexpr auto by_layer = with(zoomr_one_pass, [](auto& p) {
  p.aggregate.per = ::zoomr::scope::layer;
  p.zone.prompt = false;
});
// Each layer chooses at each token.
inline constexpr auto focus_each_token =
    with(zoomr_focus, [](auto& p) { p.refresh.at_most = 1, p.zone.prompt = false; });
// The softmax over segments that each KV head's queries would pay their summaries.
inline constexpr auto by_mass = ::zoomr::compose(
    ::zoomr::fixed_pages{.longest = 5}, ::zoomr::key_mean{}, ::zoomr::mean_dot{}, ::zoomr::pooled_mass{},
    ::zoomr::top_k{.segments = 6}, ::zoomr::every_token{}, ::zoomr::zones{.recent = 7, .open = ::zoomr::unlimited});
// The prompt stays, whatever is evicted after it.
inline constexpr auto pinned_prompt = with(h2o, [](auto& p) {
  p.evict.tokens = 24, p.evict.recent = 6, p.evict.every = 6;
  p.zone.prompt = true;
});
inline constexpr auto by_kv_head =
    ::zoomr::compose(::zoomr::sentences{.longest = 12}, ::zoomr::key_mean{}, ::zoomr::mean_dot{},
                     ::zoomr::head_votes{.k = 3, .per = ::zoomr::scope::kv_head}, ::zoomr::running_mean{},
                     ::zoomr::fill_budget{.tokens = 30}, ::zoomr::boundaries{.at_most = 5},
                     ::zoomr::zones{.sinks = 2, .recent = 6, .open = ::zoomr::unlimited});

// Segments are chosen among tokens of which some are evicted now and then; a choice stays active meanwhile.
inline constexpr auto evicting =
    ::zoomr::compose(::zoomr::sentences{.longest = 12}, ::zoomr::key_mean{}, ::zoomr::mean_dot{},
                     ::zoomr::running_mean{}, ::zoomr::fill_budget{.tokens = 30}, ::zoomr::boundaries{},
                     ::zoomr::accumulated_attention{.tokens = 50, .recent = 8, .every = 11},
                     ::zoomr::zones{.sinks = 3, .recent = 6, .open = 10});

// Heads that vote; and the exact attention of each KV head in the place of summaries.
inline constexpr auto zoomr_voters = with(presets::zoomr_voters, [](auto& p) {
  p.segment.longest = 40, p.segment.prompt_piece = 13;
  p.aggregate.queries = 5, p.aggregate.question = 0;
  p.select.segments = 3;
  p.zone.recent = 7, p.zone.turns = 0;
});
inline constexpr auto sentence_voters = with(presets::sentence_voters, [](auto& p) {
  p.segment.longest = 9;
  p.aggregate.queries = 3, p.aggregate.question = 0;
  p.zone.recent = 6, p.zone.turns = 17;
});
// Voters by their scores of summaries.
inline constexpr auto weighted_votes = ::zoomr::compose(
    zoomr_one_pass.segment, zoomr_one_pass.summarize, zoomr_one_pass.score, ::zoomr::weighted(zoomr_one_pass.aggregate),
    zoomr_one_pass.select, zoomr_one_pass.refresh, zoomr_one_pass.zone, zoomr_one_pass.placement);
inline constexpr auto weighted_mass = ::zoomr::compose(zoomr_mass.segment, zoomr_mass.summarize, zoomr_mass.score,
                                                       ::zoomr::weighted(zoomr_mass.aggregate), zoomr_mass.select,
                                                       zoomr_mass.refresh, zoomr_mass.zone, zoomr_mass.placement);
inline constexpr auto by_keys =
    ::zoomr::compose(::zoomr::sentences{.longest = 12}, ::zoomr::key_mass{}, ::zoomr::pooled_mass{},
                     ::zoomr::top_k{.segments = 2}, ::zoomr::every_token{}, ::zoomr::zones{.sinks = 2, .recent = 6});

}  // namespace small

/// Its choices read keys: on the host.
template <class Policy>
inline constexpr bool reads_keys = ::zoomr::key_scorer<decltype(Policy::score)>;
/// It evicts tokens while decoding: an item cannot be passed whole where that happens in its middle.
template <class Policy>
inline constexpr bool evicts_later = requires(const Policy& of) {
  of.evict.every;
};
/// Tokens of an item that is passed whole may all be committed, and rolled back where they are wrong: the same is left
/// as by the commit of the others alone. Voters choose at that commit, but not at a rollback.
template <class Policy>
inline constexpr bool takes_back_alike =
    !evicts_later<Policy> && !::zoomr::share_aggregator<decltype(Policy::aggregate)>;
/// Of all KV heads, not of voters alone: not over tiers.
template <class Policy>
inline constexpr bool reads_all_keys = reads_keys<Policy> && !::zoomr::share_aggregator<decltype(Policy::aggregate)>;

/// Calls `test(name, policy)` for each preset of the table, with small numbers.
template <class Test>
void for_each_preset(Test test) {
  zoomr::presets::each([&](const auto& preset) { test(preset.name, shrunk(preset.policy)); });
}

/// The same, and the policies beside the presets.
template <class Test>
void for_each_policy(Test test) {
  for_each_preset(test);
  test("zoomr_mass, a prompt of segments", small::zoomr_mass);
  test("by_layer", small::by_layer);
  test("focus_each_token", small::focus_each_token);
  test("by_mass", small::by_mass);
  test("pinned_prompt", small::pinned_prompt);
  test("by_kv_head", small::by_kv_head);
  test("evicting", small::evicting);
  test("by_keys", small::by_keys);
  test("weighted_votes", small::weighted_votes);
  test("weighted_mass", small::weighted_mass);
}

}  // namespace zoomr_test

// SPDX-License-Identifier: Apache-2.0
// Compiles only if compose() takes components in any order, gives defaults to what is not named, and makes values
// that can be compared and changed.
#include <zoomr/zoomr.hpp>

namespace zoomr {

constexpr auto one = compose(sentences{.longest = 99}, key_mean{}, mean_dot{}, fill_budget{.tokens = 512},
                             every_token{}, zones{.sinks = 4, .recent = 8});
constexpr auto other = compose(zones{.sinks = 4, .recent = 8}, every_token{}, fill_budget{.tokens = 512}, mean_dot{},
                               key_mean{}, sentences{.longest = 99});
static_assert(std::same_as<decltype(one), decltype(other)>);
static_assert(one == other);
static_assert(one != compose(sentences{.longest = 98}, key_mean{}, mean_dot{}, fill_budget{.tokens = 512},
                             every_token{}, zones{.sinks = 4, .recent = 8}));
static_assert(one.segment.longest == 99 && one.select.tokens == 512 && one.zone.recent == 8);

// Every role can be first and every role can be last.
constexpr auto all = compose(thoughts{}, observation_window{}, key_box{}, running_mean{}, box_bound{}, head_votes{},
                             top_k{}, boundaries{}, zones{.sinks = 1}, placement{.details_on_host = true});
constexpr auto turned = compose(placement{.details_on_host = true}, zones{.sinks = 1}, boundaries{}, top_k{},
                                head_votes{}, box_bound{}, running_mean{}, key_box{}, observation_window{}, thoughts{});
static_assert(std::same_as<decltype(all), decltype(turned)> && all == turned);

// What is not named has a default.
constexpr auto nothing = compose();
static_assert(nothing.segment == unsegmented{} && nothing.evict == keep_all{});
static_assert(nothing.summarize == no_summary{} && nothing.query == last_query{} && nothing.score == mean_dot{});
static_assert(nothing.aggregate == pooled_score{} && nothing.select == select_none{} &&
              nothing.refresh == after_prefill{});
static_assert(nothing.zone == zones{} && nothing.placement == placement{});
static_assert(nothing.problem() == nullptr && !nothing.selects);

// Segments are chosen only if something can be scored and something is taken.
static_assert(one.selects && presets::zoomr_one_pass.selects && presets::quest.selects && presets::sentence_kv.selects);
static_assert(!presets::full.selects && !presets::window.selects && !presets::summary_only.selects);
static_assert(!compose(sentences{}, key_mean{}, select_none{}).selects);

// A policy's members can be changed like those of any value.
constexpr auto changed = [] {
  auto mine = presets::zoomr_one_pass;
  mine.aggregate.k = 3;
  mine.select.segments = 5;
  return mine;
}();
static_assert(std::same_as<decltype(changed), decltype(presets::zoomr_one_pass)> && changed != presets::zoomr_one_pass);
static_assert(changed.problem() == nullptr);

}  // namespace zoomr

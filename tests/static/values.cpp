// SPDX-License-Identifier: Apache-2.0
// Compiles only if components, policies and what they exchange are plain values: legal arguments of a kernel,
// usable at compile time, written with designated initialisers.
#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/zoomr.hpp>

namespace zoomr {

template <class... Values>
inline constexpr bool plain = ((std::regular<Values> && std::is_trivially_copyable_v<Values>)&&...);

static_assert(plain<code_segments, fixed_pages, sentences, thoughts, unsegmented>);
static_assert(plain<code_segments::state, fixed_pages::state, sentences::state, thoughts::state, unsegmented::state>);
static_assert(plain<keep_all, observation_window, key_mean, key_box, key_cuboid, no_summary, last_query, running_mean>);
static_assert(plain<accumulated_attention, redundancy_aware>);
static_assert(plain<mean_dot, box_bound, head_votes, head_mass, pooled_score, pooled_mass>);
static_assert(plain<weighted_heads<head_votes>, weighted_heads<head_mass>>);
static_assert(plain<top_k, fill_budget, select_none, boundaries, every_token, after_prefill, zones>);
static_assert(plain<placement, tiered<>>);
static_assert(plain<shape, segment, token_range, bfloat16, sequence>);
static_assert(
    plain<std::remove_const_t<decltype(presets::zoomr_one_pass)>, std::remove_const_t<decltype(presets::full)>>);
static_assert(std::is_trivially_copyable_v<view<float, 3>> && std::is_trivially_copyable_v<selection_row>);
static_assert(std::is_trivially_copyable_v<paged_kv_lane<bfloat16>> && std::is_trivially_copyable_v<attention_state>);
static_assert(std::is_trivially_copyable_v<cells<2>> && std::is_trivially_copyable_v<slot_map>);
static_assert(std::is_trivially_copyable_v<zone_bounds> && std::is_trivially_copyable_v<closings>);
static_assert(sizeof(bfloat16) == 2 && sizeof(token_class) == 2 && sizeof(level) == 1);

// Questions without a field cost nothing at run time and little in a kernel's arguments.
static_assert(std::is_empty_v<key_mean> && std::is_empty_v<mean_dot> && std::is_empty_v<last_query>);

// Each preset can work, and budgets that are too small are named.
constexpr bool all_can_work() {
  bool work = true;
  presets::each([&](const auto& preset) { work = work && preset.policy.problem() == nullptr; });
  return work;
}
static_assert(all_can_work());
static_assert(presets::sentence_box_with(7).problem() == nullptr && presets::sentence_box_with(1).problem() == nullptr);
static_assert(presets::sentence_box_with(0).problem() != nullptr);
static_assert(presets::snapkv_with(unlimited).problem() == nullptr);
static_assert(presets::h2o_with(1).problem() == nullptr);
static_assert(presets::r_kv_with(0).problem() != nullptr);
static_assert(shape{32, 32, 8, 128}.problem() == nullptr && shape{}.problem() != nullptr);
static_assert(config{}.problem() == nullptr && config{.max_tokens = 0}.problem() != nullptr);

// Segmenters run at compile time, for they must run on a device too.
constexpr index_t closed_by_two_stops() {
  sentences::state state{};
  closings closed;
  sentences{}.feed(state, token_class::plain, 0, closed);
  sentences{}.feed(state, token_class::delimiter, 1, closed);
  sentences{}.feed(state, token_class::delimiter, 2, closed);
  return closed.count;
}
static_assert(closed_by_two_stops() == 2);
constexpr index_t closed_by_two_lines() {
  code_segments::state state{};
  closings closed;
  for (const index_t position : {0, 1}) {
    code_segments{.shortest_block = 1}.feed(state, token_class::delimiter | token_class::mark, position, closed);
  }
  return closed.count;
}
static_assert(closed_by_two_lines() == 1);

// Views, bfloat16 and zones too.
constexpr float numbers[] = {1.0f, 2.0f, 3.0f, 4.0f};
static_assert(view<const float, 2>(numbers, {2, 2})(1, 0) == 3.0f);
static_assert(to_float(from_float<bfloat16>(1.5f)) == 1.5f);
static_assert(zones{.sinks = 4, .recent = 8}.back(99, 0, 0) == 92);

}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// Controls beside the presets, by name: what no index loses, and what nothing finds.
//
//   exact[@tokens]            each KV head reads the tokens with the largest attention, which it must compute first
//   random_eviction[@tokens]  each KV head keeps tokens of the prompt at random
//
// Budgets are attended tokens, sinks and window included; 256 if none is named.
#pragma once

#include <zoomr/policy/aggregate/pooled_mass.hpp>
#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/score/key_mass.hpp>
#include <zoomr/policy/segment/fixed_pages.hpp>

#include <bit>      // std::bit_cast
#include <cstdint>  // std::uint64_t
#include <string>   // std::string

#include "../../decode/code_policies.hpp"
#include "../../decode/input_error.hpp"

namespace decode {

/// Keeps tokens of the prompt at random, other ones in each KV lane: the same for the same prompt.
struct random_eviction {
  using role = zoomr::role::evictor;
  static constexpr const char* name = "random_eviction";
  static constexpr bool observes = true, accumulates = false, reads_keys = false, while_decoding = false;

  index_t tokens = 256;
  index_t last = 64;  // which stay

  constexpr index_t kept(index_t all) const { return tokens < all ? tokens : all; }
  constexpr index_t observed(index_t all) const { return last < all ? last : all; }
  constexpr index_t safe(index_t all) const { return observed(all); }
  void rate(const zoomr::kv_lane_attention& seen, zoomr::view<float> importance) const {
    std::uint64_t lane = 0;  // what was attended tells KV lanes apart
    for (index_t t = 0; t < seen.scored; ++t) lane = mixed(lane ^ std::bit_cast<std::uint32_t>(seen.received(0, t)));
    for (index_t t = 0; t < seen.scored; ++t)
      importance[t] = static_cast<float>(mixed(lane + static_cast<std::uint64_t>(t)) >> 40);
  }
  friend constexpr bool operator==(const random_eviction&, const random_eviction&) = default;

 private:
  static std::uint64_t mixed(std::uint64_t bits) {  // splitmix64
    bits += 0x9e3779b97f4a7c15u;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    return bits ^ (bits >> 31);
  }
};

inline constexpr index_t least_control_budget = 3;

/// What exact@budget reads in any case.
constexpr zoomr::zones exact_zones(index_t budget) { return zoomr::within_budget({.sinks = 4, .recent = 64}, budget); }

namespace detail {

template <class Visit>
void with_exact(index_t budget, Visit visit) {
  const zoomr::zones zone = exact_zones(budget);
  visit(zoomr::compose(zoomr::fixed_pages{.longest = 1}, zoomr::key_mass{}, zoomr::pooled_mass{},
                       zoomr::top_k{.segments = budget - zone.sinks - zone.recent}, zoomr::every_token{}, zone));
}

template <class Visit>
void with_random_eviction(index_t budget, Visit visit) {
  const zoomr::zones zone = zoomr::within_budget({.sinks = 4, .recent = 64}, budget);
  visit(zoomr::compose(random_eviction{.tokens = budget, .last = zone.recent},
                       zoomr::zones{.sinks = zone.sinks, .recent = zoomr::unlimited}));
}

}  // namespace detail

inline bool is_token_control(const std::string& name) { return name == "exact" || name == "random_eviction"; }

/// Refuses what such a control cannot do.
/// @throws input_error
inline void expect_token_control(const policy_choice& choice, const std::string& spec) {
  if (!choice.settings.empty()) fail(spec, ": ", choice.name, " has no options");
  if (choice.budget > 0 && choice.budget < least_control_budget)
    fail(spec, ": the budget is ", choice.budget, ", but must be at least ", least_control_budget);
}

/// Calls visit(policy) with a preset, one that cuts source code, or one of these controls.
template <class Visit>
void with_policy_or_control(const policy_choice& choice, Visit visit) {
  const index_t budget = choice.budget > 0 ? choice.budget : 256;
  if (choice.name == "exact") return detail::with_exact(budget, visit);
  if (choice.name == "random_eviction") return detail::with_random_eviction(budget, visit);
  with_preset_or_code(choice, visit);
}

}  // namespace decode

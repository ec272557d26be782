// SPDX-License-Identifier: Apache-2.0
// A host cache as a recorder sees it.
#pragma once

#include <zoomr/cache/sequence.hpp>
#include <zoomr/policy/placement/placement.hpp>

#include <algorithm>    // std::max
#include <string_view>  // std::string_view

#include "recorder.hpp"

namespace report {

/// All but the model's shape.
/// @param tokens  of the longest text
template <class Policy>
policy_facts facts_of(const Policy& policy, index_t tokens) {
  using aggregator = decltype(Policy::aggregate);
  policy_facts facts;
  facts.per = policy.aggregate.per;
  facts.chooses = Policy::selects;
  facts.pinned_prompt = policy.zone.prompt;
  const std::string_view name = aggregator::name;
  if (!aggregator::counts) facts.unit = name == "pooled_mass" ? vote_unit::mass : vote_unit::score;
  const bool segments = std::string_view(decltype(Policy::segment)::name) != "unsegmented";
  if (!segments) facts.pinned_prompt = false, facts.block = std::max(16, tokens / 256 / 16 * 16);
  return facts;
}

/// After a step, of a `zoomr::any_kv_cache`.
template <class Cache>
step_view view_of(const Cache& cache, zoomr::sequence seq) {
  step_view now{cache.segments(seq), cache.tokens(seq), cache.stats(seq), cache.bytes(seq), cache.pinned(seq), {}, {}};
  if constexpr (zoomr::tiered_placement<typename Cache::placement_type>) {
    now.tiers = cache.tiers();
    now.in_memory = [&cache, seq](index_t layer, index_t kv_head, index_t position) {
      const zoomr::slot_map slots = cache.slots_of(seq, layer, kv_head);
      const index_t slot = slots.slot_of(position);
      const bool held = slot < cache.slots(seq) && slots.position_of(slot) == position;
      return held && cache.in_memory(seq, layer, kv_head, slot);
    };
  }
  return now;
}

}  // namespace report

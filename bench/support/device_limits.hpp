// SPDX-License-Identifier: Apache-2.0
// How large the cache of a device scene is.
#pragma once

#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/zoomr.cuh>

#include <map>      // std::map
#include <utility>  // std::pair
#include <vector>   // std::vector

#include "device_inputs.hpp"

namespace zoomr_bench {

/// Steps of a scene that can be timed.
inline constexpr index_t slack = toy ? 64 : 2048;

/// Few heads vote, as in models: one of every second layer.  [layers, heads]
inline view<const float, 2> voter_weights(const zoomr::shape& model) {
  static std::map<std::pair<index_t, index_t>, std::vector<float>> tables;  // by layers and heads
  std::vector<float>& table = tables[{model.layers, model.heads}];
  if (table.empty()) {
    table.resize(static_cast<std::size_t>(model.layers * model.heads));
    for (index_t layer = 0; layer < model.layers; layer += 2) {
      table[static_cast<std::size_t>(layer * model.heads + layer % model.heads)] = 1.0f;
    }
  }
  return {table.data(), {model.layers, model.heads}};
}

/// The arena of a tiered store has room for 1/8 of all pages.
template <head_count Heads, class Policy>
zoomr::config device_limits(const Policy& policy, const text& says, const zoomr::shape& model, index_t splits) {
  zoomr::config limits;
  limits.max_sequences = Heads.batch;
  limits.max_tokens = says.timed_from + slack;
  limits.max_segments = limits.max_tokens / (toy ? 8 : 16) + 16;  // pages of 16 are the shortest
  limits.max_batched_tokens = Heads.batch * device_inputs::chunk;
  limits.max_draft_tokens = 1;
  limits.classes = text::classes;
  if constexpr (zoomr::share_aggregator<decltype(Policy::aggregate)>) limits.voters = voter_weights(model);
  if constexpr (zoomr::tiered_placement<decltype(Policy::placement)>) {
    using zoomr::bfloat16;
    const auto resident = with_placement(policy, zoomr::placement{});
    using resident_policy = std::remove_const_t<decltype(resident)>;
    using tiered_cache = zoomr::device_cache<Policy, bfloat16, head_dim, Heads.group>;
    using resident_cache = zoomr::device_cache<resident_policy, bfloat16, head_dim, Heads.group>;
    const std::int64_t all = tiered_cache::host_bytes(model, policy, limits);
    limits.tiers.device = zoomr::too_many_bytes;
    const zoomr::detail::device_sizes sizes(model, zoomr::detail::any_policy_of<Policy>(policy), limits, splits,
                                            zoomr::detail::pages_in::tiers);
    const std::int64_t blocks = std::int64_t{model.layers} * sizes.pages * sizes.page_parts;
    const std::int64_t entries = std::int64_t{sizes.sequences} * sizes.sequence_pages * sizes.page_parts;
    const std::int64_t tables = blocks * 8 + entries * 16 + (64 << 10);  // 4 bytes of a block, 25 of each eighth
    limits.tiers.device = resident_cache::bytes(model, resident, limits, splits) - all + all / 8 + tables;
  }
  return limits;
}

}  // namespace zoomr_bench

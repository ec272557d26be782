// SPDX-License-Identifier: Apache-2.0
// The heads that vote in tests.
#pragma once

#include <zoomr/cache/config.hpp>
#include <zoomr/policy/concepts.hpp>

#include <map>      // std::map
#include <utility>  // std::pair
#include <vector>   // std::vector

namespace zoomr_test {

/// Some heads of one KV head, all of another, each with a weight of its own.  [layers, heads]
inline std::vector<float> voter_weights(const zoomr::shape& model) {
  std::vector<float> made;
  for (zoomr::index_t head = 0; head < model.layers * model.heads; ++head) {
    made.push_back(head % 3 == 0 || head == 1 ? 0.25f + 0.125f * static_cast<float>(head % 5) : 0.0f);
  }
  return made;
}

/// Its choices ask them.
template <class Policy>
inline constexpr bool asks_voters =
    zoomr::share_aggregator<decltype(Policy::aggregate)> || zoomr::weighing_aggregator<decltype(Policy::aggregate)>;

/// The config with these weights, if the policy asks for them.
template <class Policy>
zoomr::config with_voters(const Policy&, zoomr::config limits, const zoomr::shape& model) {
  if constexpr (asks_voters<Policy>) {
    static std::map<std::pair<zoomr::index_t, zoomr::index_t>, std::vector<float>> tables;  // by layers and heads
    std::vector<float>& table = tables[{model.layers, model.heads}];
    if (table.empty()) table = voter_weights(model);
    limits.voters = {table.data(), {model.layers, model.heads}};
  }
  return limits;
}

/// The config with a rotary embedding: angles that are no multiples of each other, and leave a few dimensions.
inline zoomr::config with_rotary(zoomr::config limits) {
  static const std::vector<float> frequencies = {1.0f, 0.31f, 0.07f};
  limits.rotary.frequencies = {frequencies.data(), {3}};
  return limits;
}

}  // namespace zoomr_test

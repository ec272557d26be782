// SPDX-License-Identifier: Apache-2.0
// Policies on one trace in lock step: the trace is read once, and full attention made once, for all of them.
#pragma once

#include <functional>  // std::function
#include <string>      // std::string
#include <vector>      // std::vector

#include "player.hpp"

namespace replay {

/// A policy of the command line.
struct named_policy {
  std::string text;  // "quest@256+zones.recent=32"
  decode::policy_choice choice;
};

/// Each policy, with each budget unless it names its own or takes none; none twice.
/// @param texts  NAME[@BUDGET][+component.field=value]...
/// @throws decode::input_error
std::vector<named_policy> named_policies(const std::vector<std::string>& texts, const std::vector<index_t>& budgets);

/// How a replay is watched. What is empty is not called.
struct watcher {
  /// The share of all work that is done, by an estimate.
  std::function<void(double)> progress;
  /// The recorder of a policy, by its place in the list, or nullptr; it must outlive the replay.
  std::function<report::recorder*(std::size_t, const report::policy_facts&)> recorder;
};

/// Of how many keys with the largest logits the recall is taken.
constexpr index_t top_keys = 64;

/// @param memory  of all caches together, and of what is read of the trace at a time
/// @param shared  `limits.memory` is not read: each cache gets its part of `memory`
/// @throws decode::input_error
std::vector<replay_result> play(trace& from, const std::vector<named_policy>& policies, zoomr::byte_count memory,
                                settings shared, const watcher& seen = {});

}  // namespace replay

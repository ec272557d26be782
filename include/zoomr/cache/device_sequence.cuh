// SPDX-License-Identifier: Apache-2.0
// L6. What the host's half of a device cache knows of a sequence, and of its part of a step.
#pragma once

#include <zoomr/cache/device_retained.cuh>
#include <zoomr/cache/plan.hpp>
#include <zoomr/cache/sequence_state.hpp>

#include <vector>  // std::vector

namespace zoomr {
inline namespace v0 {

/// A choice that stays, or has stayed, in force.
struct placed_choice {
  index position = -1;  // of the token that made it
  index place = -1;     // in the ring of its sequence
};

/// What the host knows of a sequence.
template <class Policy>
struct device_sequence : token_state<Policy> {
  std::vector<placed_choice> choices;  // those that can still be gone back to, oldest first
  bool dropped = false;                // an older one was given up
  index known_segments = 0;            // in the device's table, and summarised
  carried_sums sums;

  index last_choice() const { return choices.empty() ? -1 : choices.back().position; }
  /// True if what was in force before the token at `position` is still there.
  bool reaches(index position) const { return !dropped || choices.front().position < position; }
};

/// One sequence's part of a step, as the device cache needs it.
struct device_item {
  planned_item plan;
  index place = -1;   // of the choice that its last token makes and that stays in force
  retention_due due;  // by its commit
};

}  // namespace v0
}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// L6. What the host's half of a device cache knows of a sequence, and of its part of a step. The device never reads any
// of it: what it needs is copied into the step's table, or into the arguments of a launch.
#pragma once

#include <zoomr/cache/device/eviction_state.cuh>
#include <zoomr/cache/state/step_items.hpp>

#include <vector>  // std::vector

namespace zoomr {
inline namespace v0 {
namespace detail {

/// A choice that stays active, or has been. Its levels lie on the device at `place`, and where choices depend on drift
/// its queries; the host knows only where.
struct placed_choice {
  index_t position = -1;  // of the token that made it
  index_t place = -1;     // among all places: sequence * ring + its number in the ring of its sequence
};

/// What the host knows of a sequence: as after its last commit, whose kernels the device may not have come to yet, and
/// the pages of the step in progress.
struct device_sequence : token_state {
  using token_state::token_state;

  std::vector<placed_choice> choices;  // those that can still be gone back to, oldest first
  bool dropped = false;                // an older one was dropped
  index_t known_segments = 0;          // in the device's table, and summarised
  carried_sums sums;                   // only for an evictor that accumulates

  /// Position of the token that made the active choice; -1: there is none.
  index_t last_choice() const { return choices.empty() ? -1 : choices.back().position; }
  /// True if what was active before the token at `position` is still there.
  bool reaches(index_t position) const { return !dropped || choices.front().position < position; }

  /// It is closed.
  void forget_everything(const any_segmenter& segmenter) {
    forget_tokens(segmenter);
    choices.clear();
    dropped = false;
    known_segments = 0;
    sums = {};
  }
};

/// One sequence's part of a step, as the device cache needs it: `place` is given by `begin`, `due` by `commit`, which
/// enqueues what it says.
struct device_item : planned_item {
  index_t place = -1;  // of the choice that its last token makes and that stays active
  eviction_due due;    // by its commit
};

}  // namespace detail
}  // namespace v0
}  // namespace zoomr

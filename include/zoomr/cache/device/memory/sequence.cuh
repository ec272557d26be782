// SPDX-License-Identifier: Apache-2.0
// L6. What the host's half of a device cache keeps of a sequence, and of its part of a step. The device never reads any
// of it: what it needs is copied into the step's table, or into the arguments of a launch.
#pragma once

#include <zoomr/cache/device/eviction/eviction_state.cuh>
#include <zoomr/cache/state/step_items.hpp>

#include <algorithm>  // std::max, std::min
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// A choice that stays active, or has been. Its levels are on the device at `place`; the host has the place alone.
struct placed_choice {
  index_t position = -1;  // of the token that made it
  index_t place = -1;     // among all places: sequence * ring + its number in the ring of its sequence
};

/// The host's state of a sequence: as after its last commit, whose kernels the device may not have come to yet, and the
/// pages of the step in progress.
struct device_sequence : token_state {
  using token_state::token_state;

  std::vector<placed_choice> choices;  // those that can still be gone back to, oldest first
  bool dropped = false;                // an older one was dropped
  index_t known_segments = 0;          // in the device's table, and summarised
  pinned_segments known_pins;          // as the device has these
  index_t known_pages = 0;             // of its page table: those before it are on the device
  carried_sums sums;                   // only for an evictor that accumulates

  /// The device has all segments that there are.
  void know_segments() {
    known_segments = segment_count();
    known_pins = pins;
  }
  /// visit(id) for each segment that the device has and that is pinned, unless it has it so; or is not, likewise.
  template <class Visit>
  void each_other_pin(Visit visit) const {
    const auto each = [&](const pinned_segments& pinned, const pinned_segments& other) {
      const auto visit_range = [&](token_range ids, index_t from) {
        for (index_t id = (std::max)(ids.first, from); id < (std::min)(ids.last, known_segments); ++id) {
          if (!other.has(id)) visit(id);
        }
      };
      visit_range(pinned.preamble, 0);
      visit_range(pinned.question, pinned.preamble.last);
    };
    each(known_pins, pins);
    each(pins, known_pins);
  }

  /// Position of the token that made the active choice; -1: there is none.
  index_t last_choice() const { return choices.empty() ? -1 : choices.back().position; }
  /// Where it is.
  index_t active_place() const { return choices.empty() ? -1 : choices.back().place; }
  /// True if what was active before the token at `position` is still there.
  bool reaches(index_t position) const { return !dropped || (!choices.empty() && choices.front().position < position); }

  /// The place where the next choice that stays active goes: the one after the last in the sequence's ring. `choices`
  /// holds fewer than the ring has, so that none that can be gone back to is lost.
  /// @param ring  places of a sequence
  /// @param mine  its number
  index_t next_place(index_t ring, index_t mine) const {
    const index_t last = choices.empty() ? ring - 1 : choices.back().place % ring;
    return mine * ring + (last + 1) % ring;
  }
  /// A choice is active from now on. The oldest is forgotten where the ring is full.
  void activate(const placed_choice& choice, index_t ring) {
    choices.push_back(choice);
    if (static_cast<index_t>(choices.size()) < ring) return;
    choices.erase(choices.begin());
    dropped = true;
  }

  /// Becomes what another one is; its choices are in the same places of its own ring. Pages are those of the other, as
  /// of token_state::become.
  void become(const device_sequence& other, index_t ring, index_t mine) {
    token_state::become(other);
    choices.assign(other.choices.begin(), other.choices.end());
    for (placed_choice& choice : choices) choice.place = mine * ring + choice.place % ring;
    dropped = other.dropped;
    known_segments = other.known_segments;
    known_pins = other.known_pins;
    known_pages = other.known_pages;
    sums = other.sums;
  }
  /// It is closed.
  void forget_everything(const any_segmenter& segmenter) {
    forget_tokens(segmenter);
    known_pins = pins;
    choices.clear();
    dropped = false;
    known_segments = known_pages = 0;
    sums = {};
  }
};

/// One sequence's part of a step, as the device cache needs it: `begin` sets `place`, `commit` sets `due` and enqueues
/// it.
struct device_item : planned_item {
  index_t place = -1;  // of the choice that its last token makes and that stays active
  index_t pages = 0;   // of its sequence that the device has once its table is there
  eviction_due due;    // by its commit

  /// The last of its tokens that are accepted makes a choice when they are committed.
  /// @param of_part  planned_item::waits
  bool chooses_at_commit(index_t accepted, bool of_part) const { return prompt ? chooses : waits(accepted, of_part); }
};

}  // namespace zoomr::inline v0::detail

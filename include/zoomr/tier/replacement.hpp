// SPDX-License-Identifier: Apache-2.0
// L3. Which block makes room when a tier is full.
#pragma once

#include <zoomr/core/types.hpp>

#include <concepts>  // std::same_as
#include <vector>    // std::vector

namespace zoomr {
inline namespace v0 {

/// Watches the slots of a tier. `victim(may_go)` is a slot in use for which may_go(slot), or -1 if there is none.
template <class T>
concept replacement = std::constructible_from<T, index> && requires(T& order, index slot, bool (*may_go)(index)) {
  order.touch(slot);   // it is used, perhaps for the first time
  order.forget(slot);  // it is empty again
  { order.victim(may_go) } -> std::same_as<index>;
};

/// The one that was used longest ago.
/// @cost  O(1) for each use; for a victim as much for each that may not go
class least_recent {
 public:
  explicit least_recent(index slots) : next_(static_cast<std::size_t>(slots) + 1), before_(next_.size()) {
    for (index slot = 0; slot <= slots; ++slot) at(next_, slot) = at(before_, slot) = slot;  // alone
    end_ = slots;
  }

  void touch(index slot) {
    forget(slot);
    const index last = at(before_, end_);
    at(next_, last) = slot, at(before_, slot) = last;
    at(next_, slot) = end_, at(before_, end_) = slot;
  }
  void forget(index slot) {
    at(next_, at(before_, slot)) = at(next_, slot);
    at(before_, at(next_, slot)) = at(before_, slot);
    at(next_, slot) = at(before_, slot) = slot;
  }
  template <class MayGo>
  index victim(MayGo may_go) const {
    index slot = next_[static_cast<std::size_t>(end_)];
    while (slot != end_ && !may_go(slot)) slot = next_[static_cast<std::size_t>(slot)];
    return slot == end_ ? -1 : slot;
  }

 private:
  static index& at(std::vector<index>& of, index slot) { return of[static_cast<std::size_t>(slot)]; }

  // A ring of the slots in use, oldest first; the last place is its end.
  std::vector<index> next_;
  std::vector<index> before_;
  index end_ = 0;
};

/// One that is used seldom: a hand goes round and takes one off the count of each slot that it passes, until it finds
/// one that has none left. Old uses are forgotten as fast as room is needed.
/// @cost  O(1) for each use; for a victim as many slots as the hand passes, at most `most` rounds
class least_frequent {
 public:
  static constexpr index most = 7;  // uses that count

  explicit least_frequent(index slots) : uses_(static_cast<std::size_t>(slots), -1) {}

  void touch(index slot) {
    index& uses = uses_[static_cast<std::size_t>(slot)];
    uses = uses < most ? uses + 1 : most;
  }
  void forget(index slot) { uses_[static_cast<std::size_t>(slot)] = -1; }
  template <class MayGo>
  index victim(MayGo may_go) {
    const auto slots = static_cast<index>(uses_.size());
    for (index idle = 0; idle < slots; ++idle) {  // a round in which nothing may go is the last one
      hand_ = (hand_ + 1) % slots;
      index& uses = uses_[static_cast<std::size_t>(hand_)];
      if (uses < 0 || !may_go(hand_)) continue;
      if (uses == 0) return hand_;
      --uses;
      idle = -1;
    }
    return -1;
  }

 private:
  std::vector<index> uses_;  // [slots]  since it came; -1: empty
  index hand_ = -1;
};

static_assert(replacement<least_recent> && replacement<least_frequent>);

}  // namespace v0
}  // namespace zoomr

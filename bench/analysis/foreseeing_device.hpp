// SPDX-License-Identifier: Apache-2.0
// A device of some size that is told what will be read.
#pragma once

#include <algorithm>  // std::find
#include <vector>     // std::vector

#include "trace.hpp"

namespace tier_trace {

/// A device with the order cyclic_mru, asked as tiered_pool asks it.
class foreseeing_device {
 public:
  foreseeing_device(const trace& of, index_t slots)
      : layers_(of.layers),
        order_(slots, of.layers),
        slot_of_(static_cast<std::size_t>(of.blocks()), -1),
        slots_(static_cast<std::size_t>(slots)),
        recent_(pool::guarded, -1) {}

  void read(const reading& one) {
    if (one.begins_pass) order_.begin_pass(), ++pass_;
    const bool chosen_anew = one.first_served.made();
    for (const index_t block : one.blocks) {
      if (slot_of(block) >= 0) touch(slot_of(block));
    }
    for (const index_t block : one.blocks) {
      const bool here = slot_of(block) >= 0;
      if (!here) enter(block, empty_slot());
      slot& at = slots_[static_cast<std::size_t>(slot_of(block))];
      if (here && at.ahead) ++used;
      at.ahead = false;
      touch(slot_of(block));
      recent_[turn_++ % recent_.size()] = slot_of(block);
      (here ? hits : misses) += 1;
      if (chosen_anew) (here ? hits_after_choices : misses_after_choices) += 1;
    }
  }

  /// Brings a block, unless it is here.
  /// @return  false if all slots hold what is likelier to be read
  bool bring(index_t block) {
    if (slot_of(block) >= 0) return true;
    if (filled_ == slots_.size()) {
      const index_t goes = victim();
      if (goes < 0 || slots_[static_cast<std::size_t>(goes)].pass + layers_ >= pass_) return false;
    }
    enter(block, empty_slot());
    slots_[static_cast<std::size_t>(slot_of(block))].ahead = true;
    order_.expect(slot_of(block));
    slots_[static_cast<std::size_t>(slot_of(block))].pass = pass_ + 1;
    ++brought;
    return true;
  }

  std::int64_t hits = 0, misses = 0;
  std::int64_t hits_after_choices = 0, misses_after_choices = 0;  // of readings that a choice serves first
  std::int64_t brought = 0, used = 0;                             // ahead of their reading

 private:
  struct slot {
    index_t block = -1;
    std::int64_t pass = 0;  // of its last use
    bool ahead = false;     // it was brought, and not read yet
  };
  index_t& slot_of(index_t block) { return slot_of_[static_cast<std::size_t>(block)]; }
  void touch(index_t at) {
    order_.touch(at);
    slots_[static_cast<std::size_t>(at)].pass = pass_;
  }
  index_t victim() const {
    return order_.victim([&](index_t at) { return std::find(recent_.begin(), recent_.end(), at) == recent_.end(); });
  }
  index_t empty_slot() {
    if (filled_ < slots_.size()) return static_cast<index_t>(filled_++);
    const index_t at = victim();
    slot_of(slots_[static_cast<std::size_t>(at)].block) = -1;
    order_.forget(at);
    return at;
  }
  void enter(index_t block, index_t at) {
    slots_[static_cast<std::size_t>(at)] = {block, 0, false};
    slot_of(block) = at;
  }

  index_t layers_;
  zoomr::cyclic_mru order_;
  std::vector<index_t> slot_of_;
  std::vector<slot> slots_;
  std::size_t filled_ = 0;
  std::vector<index_t> recent_;
  std::size_t turn_ = 0;
  std::int64_t pass_ = 0;
};

}  // namespace tier_trace

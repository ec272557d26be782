// SPDX-License-Identifier: Apache-2.0
// L3. One tier's memory: slots, and which blocks lie in them.
#pragma once

#include <zoomr/core/buffer.hpp>
#include <zoomr/tier/replacement.hpp>
#include <zoomr/tier/transfers.hpp>

namespace zoomr {
inline namespace v0 {

/// Room for one block, and what goes on in it.
struct tier_slot {
  index block = -1;     // -1: empty
  bool dirty = false;   // the tier below has something else, or nothing
  ticket arriving = 0;  // a transfer into it that has not been waited for
  ticket leaving = 0;   // a transfer to the tier below that has not been waited for
};

/// Plain data; tiered_pool keeps its parts in step.
template <class T, replacement Replacement>
struct tier {
  buffer<T> memory;  // [slots, numbers of a block]
  std::vector<tier_slot> slots;
  std::vector<index> slot_of;  // [blocks]  -1: not here
  std::vector<index> free;     // empty slots
  Replacement order;

  /// @throws error(capacity) without memory
  tier(index count, index layers, index blocks, std::int64_t block_numbers)
      : memory(count * block_numbers),
        slots(static_cast<std::size_t>(count)),
        slot_of(static_cast<std::size_t>(blocks), -1),
        order(count, layers) {
    free.reserve(slots.size());
    for (index s = count; s-- > 0;) free.push_back(s);
  }

  /// Of the tables, for each slot and for each block.
  static constexpr byte_count slot_table_bytes = sizeof(tier_slot) + sizeof(index) + Replacement::slot_bytes;
  static constexpr byte_count block_table_bytes = sizeof(index);

  /// Where a slot's numbers lie.
  T* numbers(index slot) { return memory.data() + slot * (memory.size() / static_cast<std::int64_t>(slots.size())); }

  void enter(index at, index block) {
    slots[static_cast<std::size_t>(at)].block = block;
    slot_of[static_cast<std::size_t>(block)] = at;
  }
  void empty(index at) {
    tier_slot& of = slots[static_cast<std::size_t>(at)];
    slot_of[static_cast<std::size_t>(of.block)] = -1;
    order.forget(at);
    free.push_back(at);
    of = {};
  }
};

}  // namespace v0
}  // namespace zoomr

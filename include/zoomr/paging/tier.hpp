// SPDX-License-Identifier: Apache-2.0
// L3. One tier's memory: slots, and which blocks are in them. tiered_blocks has two, the device's and the host's.
#pragma once

#include <zoomr/core/buffer.hpp>
#include <zoomr/paging/replacement.hpp>
#include <zoomr/paging/transfers.hpp>

namespace zoomr {
inline namespace v0 {

/// Room for one block, and what goes on in it.
struct tier_slot {
  index_t block = -1;   // -1: empty
  bool dirty = false;   // the tier below has something else, or nothing
  ticket arriving = 0;  // a transfer into it that has not been waited for
  ticket leaving = 0;   // a transfer to the tier below that has not been waited for
};

/// Plain data; tiered_blocks keeps its parts in step. A slot is in one of three states: empty (in `free`), claimed
/// (taken from it, with no block yet), or with a block that `slot_of` finds.
template <class T, replacement Replacement>
struct tier {
  buffer<T> memory;  // [slots, numbers of a block]
  std::vector<tier_slot> slots;
  std::vector<index_t> slot_of;  // [blocks]  -1: not here
  std::vector<index_t> free;     // empty slots
  Replacement order;

  /// @throws error(capacity) without memory
  tier(index_t count, index_t layers, index_t blocks, std::int64_t block_numbers)
      : memory(count * block_numbers),
        slots(static_cast<std::size_t>(count)),
        slot_of(static_cast<std::size_t>(blocks), -1),
        order(count, layers) {
    free.reserve(slots.size());
    for (index_t s = count; s-- > 0;) free.push_back(s);
  }

  /// Of the tables, for each slot and for each block.
  static constexpr byte_count slot_table_bytes = sizeof(tier_slot) + sizeof(index_t) + Replacement::slot_bytes;
  static constexpr byte_count block_table_bytes = sizeof(index_t);

  /// Where a slot's numbers are.
  T* numbers(index_t slot) { return memory.data() + slot * (memory.size() / static_cast<std::int64_t>(slots.size())); }

  /// Gives a claimed slot to a block; what its memory holds is somebody else's business.
  /// @pre  the block has no slot in this tier
  void enter(index_t at, index_t block) {
    slots[static_cast<std::size_t>(at)].block = block;
    slot_of[static_cast<std::size_t>(block)] = at;
  }
  /// Makes a slot with a block an empty one; its contents are lost.
  /// @pre  no transfer from or into it is waited for
  void empty(index_t at) {
    tier_slot& slot = slots[static_cast<std::size_t>(at)];
    slot_of[static_cast<std::size_t>(slot.block)] = -1;
    order.forget(at);
    free.push_back(at);
    slot = {};
  }
};

}  // namespace v0
}  // namespace zoomr

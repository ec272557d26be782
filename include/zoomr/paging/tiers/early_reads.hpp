// SPDX-License-Identifier: Apache-2.0
// L3. Reads that are begun before their turn, so that a disk has several to work on.
//
// Transfers take effect in the order in which they were started. A read may be under way before its turn if nothing
// sees that: if no transfer that is made before it reads or writes the memory that it fills, or writes its block. This
// is done only while a disk is waited for: what the system has in memory comes at once, and is best read in its turn.
// Only reads go ahead. Writes end in the system's memory, and a copy keeps a processor busy whenever it is made.
#pragma once

#include <zoomr/paging/tiers/transfer.hpp>

#include <cstdint>  // std::uintptr_t

namespace zoomr::inline v0 {

/// Looks through the transfers that wait; each is made in its turn all the same, as if nothing had been begun. Tickets
/// count transfers in the order of their start, which is the order in which they are made.
///
/// It locks nothing: async_transfers calls it under the lock that the making of transfers needs.
/// @cost  O(1) for each transfer; where a disk is waited for, O(window) for each read
class early_reads {
 public:
  static constexpr ticket window = 64;  // transfers that are looked at: as a rule, each read has a copy after it

  /// Begins the next transfer, if it is a read, and if that does not come at once those after it that can be begun.
  /// @param done     transfers that are made, all before the others
  /// @param started  transfers that were started, made < started
  /// @param waiting  waiting(of) is a transfer, made < of <= started; it stays there until it is made
  template <class Waiting>
  void begin(ticket done, ticket started, const failed_tickets& failed, Waiting waiting) {
    const ticket next = done + 1;
    const transfer first = waiting(next);
    if (first.from != nullptr || !first.file->begins_reads()) return;
    if (!begun(next)) {
      seen_ = (std::max)(seen_, next);
      begun_[next % window] = goes(first, failed);
    }
    if (begun(next) && first.file->comes_late(first.to)) begin_after(done, started, failed, waiting);
  }

  /// Makes the next transfer, unless what it comes after has failed.
  /// @param failed  if this one fails, it is one of them
  /// @return        false if it has failed
  bool make(ticket next, const transfer& one, failed_tickets& failed) const {
    const bool goes = begun(next) || !failed.has(one.after);  // what was begun must be finished
    const block_fault fault = goes ? move_one(one) : block_fault{};
    if (goes && !fault) return true;
    failed.add(next, goes ? fault : failed.why(one.after));
    return false;
  }

  /// Whether a transfer, of those that are not made, was begun.
  bool begun(ticket number) const { return number <= seen_ && begun_[number % window]; }

 private:
  struct held_read {
    ticket number;
    ticket before;  // the last one that must be made before it
  };

  // Begins a read, unless what it comes after has failed, or there is no place for it.
  static bool goes(const transfer& read, const failed_tickets& failed) {
    return !failed.has(read.after) && read.file->begin_read(read.block, read.to);
  }

  // Forgets the reads whose turn has come, looks at the transfers of the window that are new, and begins each read that
  // nothing before it stands in the way of any more.
  template <class Waiting>
  void begin_after(ticket done, ticket started, const failed_tickets& failed, Waiting waiting) {
    index_t left = 0;
    for (index_t i = 0; i < held_count_; ++i) {
      if (held_[i].number > done + 1) held_[left++] = held_[i];
    }
    held_count_ = left;
    for (const ticket last = (std::min)(started, done + window); seen_ < last;) {
      const ticket next = ++seen_;
      begun_[next % window] = false;
      const transfer& one = waiting(next);
      if (one.from != nullptr || !one.file->begins_reads()) continue;
      held_[held_count_++] = {next, last_before(next, done, waiting)};
    }
    left = 0;
    for (index_t i = 0; i < held_count_; ++i) {
      const held_read each = held_[i];
      const bool begins = each.before <= done && goes(waiting(each.number), failed);
      begun_[each.number % window] = begins;
      if (!begins) held_[left++] = each;
    }
    held_count_ = left;
  }

  // The last transfer that must be made before the read `number` may begin: `done`, or one that waits. What `number`
  // comes after must be made too, since it may fail.
  template <class Waiting>
  static ticket last_before(ticket number, ticket done, Waiting waiting) {
    const transfer& read = waiting(number);
    ticket last = number - 1;
    while (last > done && last != read.after && !in_the_way(waiting(last), read)) --last;
    return last;
  }
  // True if it would be seen that `read` comes before `earlier`: one writes what the other reads or writes.
  static bool in_the_way(const transfer& earlier, const transfer& read) {
    const bool same_block = earlier.to == nullptr && earlier.file == read.file && earlier.block == read.block;
    return same_block || meet(earlier.from, earlier.bytes, read.to, read.bytes) ||
           meet(earlier.to, earlier.bytes, read.to, read.bytes);
  }
  // Two stretches of memory have a byte in common; nullptr has none.
  static bool meet(const void* a, byte_count a_bytes, const void* b, byte_count b_bytes) {
    const auto a_first = reinterpret_cast<std::uintptr_t>(a);
    const auto b_first = reinterpret_cast<std::uintptr_t>(b);
    return a != nullptr && a_first < b_first + static_cast<std::uintptr_t>(b_bytes) &&
           b_first < a_first + static_cast<std::uintptr_t>(a_bytes);
  }

  ticket seen_ = 0;  // transfers that were looked at, or made
  bool begun_[window] = {};
  held_read held_[window];  // reads that were looked at and wait for others
  index_t held_count_ = 0;
};

}  // namespace zoomr::inline v0

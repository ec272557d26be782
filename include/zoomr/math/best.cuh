// SPDX-License-Identifier: Apache-2.0
// L2. A block takes items best first, without sorting them: highest key, ties to the lower id, until a limit is
// reached. It looks for the item that reaches the limit, digit by digit from the highest in which the keys differ: how
// many items, tokens and how much mass has each digit, and with which digit is a limit reached? Then all that is better
// is taken, and what equals it is walked in ascending id. Integers only, so that the result is that of the host's walk.
#pragma once

#include <zoomr/core/device/block.cuh>
#include <zoomr/math/order.hpp>

namespace zoomr::inline v0 {

/// Shared memory of a walk: 1,024 digits, some for each thread, so that `Threads` is a power of two.
template <index_t Threads>
struct best_scratch {
  static_assert(Threads >= warp_lanes && Threads <= 1024 && (Threads & (Threads - 1)) == 0);
  static constexpr int digit_bits = 10;
  static constexpr index_t digits = 1 << digit_bits;
  shared_array<index_t, digits> count;    // items with this digit
  shared_array<index_t, digits> tokens;   // theirs
  shared_array<unsigned, digits> low;     // their mass: 64 bits in two additions of 32, the second with the carry,
  shared_array<unsigned, digits> high;    // since one of 64 bits is slow where many threads meet
  shared_array<std::int64_t, 7> reached;  // the digit that reaches a limit, what is taken before it, what it has
};

/// Some items of a walk. Tokens and mass are counted only if they are limited.
struct best_part {
  index_t count = 0;
  index_t tokens = 0;
  votes_t mass = 0;

  __device__ best_part operator+(const best_part& more) const {
    return {count + more.count, tokens + more.tokens, mass + more.mass};
  }
};

/// One walk of a block of `Threads` threads, all of which call the same things in the same order.
///
/// Items has `size()`, `key(id)`, a votes, and `tokens(id)`, which is read only if room is limited. Items whose key is
/// `not_eligible` or below `least` are never taken; a `share` is of the keys of all that are eligible.
/// @pre   the tokens of all items together, and with a `share` their keys, fit into their types
/// @cost  reads each key twice, and once more for each digit of 10 bits in which keys differ, until one item is left:
///        as a rule for two; 3 barriers for each digit, and 3 before; atomics in shared memory only
template <index_t Threads, class Items>
class best_walk {
 public:
  __device__ best_walk(block_threads& block, best_scratch<Threads>& scratch, const Items& items,
                       const take_limits& limits, votes_t least)
      : block_(block), scratch_(scratch), items_(items), limits_(limits), least_(least) {
    find();
  }

  /// Calls visit(id, part) on all threads, tile by tile of `Threads` ascending ids; the last ones may be past the
  /// end. part: `unlimited` if all of the item is taken, 0 if nothing, else so many of its first tokens.
  template <class Visit>
  __device__ void each(Visit visit) {
    best_part before = better_;
    for (index_t first = 0; first < items_.size(); first += Threads) {
      const index_t id = first + block_.thread();
      const std::uint64_t word = word_of(id);
      const bool tie = ties_ && word != none && digits(word) == bound_;
      index_t part = word != none && digits(word) > bound_ ? unlimited : 0;
      if (one_tie_) {
        if (tie) part = fitting(id, before);
      } else if (ties_ && !full(before)) {
        const scanned<best_part> tile = scan(tie ? part_of(id, word) : best_part{});
        if (tie && !full(before + tile.before)) part = fitting(id, before + tile.before);
        before = before + tile.all;
      }
      visit(id, part);
    }
  }

 private:
  static constexpr std::uint64_t none = 0;  // not in the walk
  static constexpr int digit_bits = best_scratch<Threads>::digit_bits;
  static constexpr index_t own_digits = best_scratch<Threads>::digits / Threads;
  static constexpr std::uint64_t sign = std::uint64_t{1} << 63;

  // Words order as keys do; `none` is that of the lowest votes, `not_eligible`.
  __device__ std::uint64_t word_of(index_t id) const {
    if (id >= items_.size()) return none;
    const votes_t key = items_.key(id);
    return key < least_ ? none : static_cast<std::uint64_t>(key) ^ sign;
  }
  __device__ static votes_t key_of(std::uint64_t word) { return static_cast<votes_t>(word ^ sign); }
  __device__ std::uint64_t digits(std::uint64_t word) const { return shift_ < 64 ? word >> shift_ : 0; }

  __device__ bool limits_room() const { return limits_.room < unlimited; }
  __device__ bool shares() const { return limits_.share > 0.0f; }
  __device__ bool full(const best_part& taken) const {
    return taken.count >= limits_.segments || (limits_room() && taken.tokens >= limits_.room) ||
           (shares() && taken.mass >= wanted_);
  }

  __device__ best_part part_of(index_t id, std::uint64_t word) const {
    return {1, limits_room() ? items_.tokens(id) : 0, shares() ? key_of(word) : 0};
  }
  __device__ index_t fitting(index_t id, const best_part& before) const {
    if (!limits_room()) return unlimited;
    const index_t room = limits_.room - before.tokens;
    return items_.tokens(id) <= room ? unlimited : limits_.cut ? room : 0;
  }

  // Count and tokens of all items fit one word, and are added together.
  static constexpr std::uint64_t one_item = std::uint64_t{1} << 32;
  __device__ static std::uint64_t packed(const best_part& part) {
    return static_cast<std::uint64_t>(part.count) * one_item + static_cast<std::uint64_t>(part.tokens);
  }
  __device__ static best_part unpacked(std::uint64_t sums, votes_t mass) {
    return {static_cast<index_t>(sums / one_item), static_cast<index_t>(sums % one_item), mass};
  }
  __device__ best_part sum(const best_part& part) {
    const std::uint64_t sums = block_.sum(packed(part));
    return unpacked(sums, shares() ? block_.sum(part.mass) : 0);
  }
  __device__ scanned<best_part> scan(const best_part& part) {
    const scanned<std::uint64_t> sums = block_.sum_before(packed(part));
    const scanned<votes_t> mass = shares() ? block_.sum_before(part.mass) : scanned<votes_t>{};
    return {unpacked(sums.before, mass.before), unpacked(sums.all, mass.all)};
  }

  __device__ void find() {
    std::uint64_t highest = none;
    std::uint64_t lowest = ~none;
    best_part of_thread;
    votes_t keys = 0;
    for (index_t i = 0; i < own_digits; ++i) clear(own_digit(i));  // seen by all after the first collective
    for (index_t id = block_.thread(); id < items_.size(); id += Threads) {
      if (shares() && items_.key(id) != not_eligible) keys += items_.key(id);
      const std::uint64_t word = word_of(id);
      if (word == none) continue;
      highest = word > highest ? word : highest;
      lowest = word < lowest ? word : lowest;
      of_thread = of_thread + part_of(id, word);
    }
    highest = block_.largest(highest);
    if (shares()) want(limits_.wanted(block_.sum(keys)), highest);
    const best_part all = sum(of_thread);
    if (all.count == 0 || full({})) return;  // nothing is taken
    bound_ = none;
    if (!full(all)) return;  // everything is taken
    shift_ = 64 - __clzll(static_cast<long long>(highest ^ block_.smallest(lowest)));
    bound_ = digits(highest);
    best_part left = all;
    while (shift_ > 0 && left.count > 1) left = next_digit();
    ties_ = true;
    one_tie_ = left.count == 1;
  }

  // Keys descend from k1 = key_of(highest); C(n) is the sum of the first n, and `wanted` a share of C(all). One item is
  // taken whatever its key: k1 >= wanted takes no more. Else wanted <= 0 means that all keys are below 0: C falls from
  // k1, and no C(n) >= wanted. Else C rises and then falls to C(all) >= wanted: once C(n) >= wanted, it stays so.
  __device__ void want(votes_t wanted, std::uint64_t highest) {
    wanted_ = wanted;
    const bool one_is_enough = key_of(highest) >= wanted;
    if (one_is_enough && limits_.segments > 1) limits_.segments = 1;
    if (one_is_enough || wanted <= 0) limits_.share = 0.0f;
  }

  // Narrows the bound to the digit with which a limit is reached.
  // @return  the items left that share all digits of the bound
  __device__ best_part next_digit() {
    const int bits = shift_ < digit_bits ? shift_ : digit_bits;
    count_digits(shift_ - bits, (std::uint64_t{1} << bits) - 1);
    best_part of_thread;
    for (index_t i = 0; i < own_digits; ++i) of_thread = of_thread + counted(own_digit(i));
    best_part before = better_ + scan(of_thread).before;
    for (index_t i = 0; i < own_digits; ++i) {
      const index_t digit = own_digit(i);
      const best_part mine = counted(digit);
      if (!full(before) && full(before + mine)) {
        const std::int64_t found[] = {digit,      before.count, before.tokens, before.mass,
                                      mine.count, mine.tokens,  mine.mass};
        for (index_t j = 0; j < 7; ++j) scratch_.reached[j] = found[j];
      }
      before = before + mine;
      clear(digit);  // for the next digit, whose items are counted after the barrier
    }
    __syncthreads();
    shift_ -= bits;
    bound_ = bound_ << bits | static_cast<std::uint64_t>(scratch_.reached[0]);
    better_ = reached_at(1);
    return reached_at(4);
  }

  // The digits that this thread looks after: highest first, over the threads and within each.
  __device__ index_t own_digit(index_t i) const {
    return best_scratch<Threads>::digits - 1 - block_.thread() * own_digits - i;
  }
  __device__ void clear(index_t digit) {
    scratch_.count[digit] = 0;
    scratch_.tokens[digit] = 0;
    if (!shares()) return;
    scratch_.low[digit] = 0;
    scratch_.high[digit] = 0;
  }
  __device__ void count_digits(int shift, std::uint64_t mask) {
    for (index_t id = block_.thread(); id < items_.size(); id += Threads) {
      const std::uint64_t word = word_of(id);
      if (word != none && digits(word) == bound_) add(static_cast<index_t>(word >> shift & mask), part_of(id, word));
    }
    __syncthreads();
  }
  __device__ void add(index_t digit, const best_part& part) {
    atomicAdd(&scratch_.count[digit], part.count);
    if (limits_room()) atomicAdd(&scratch_.tokens[digit], part.tokens);
    if (!shares()) return;
    const auto low = static_cast<unsigned>(part.mass);
    const unsigned before = atomicAdd(&scratch_.low[digit], low);
    const unsigned carry = before + low < low ? 1u : 0u;
    atomicAdd(&scratch_.high[digit], static_cast<unsigned>(part.mass >> 32) + carry);
  }
  __device__ best_part counted(index_t digit) const {
    votes_t mass = 0;
    if (shares()) mass = static_cast<votes_t>(std::uint64_t{scratch_.high[digit]} << 32 | scratch_.low[digit]);
    return {scratch_.count[digit], scratch_.tokens[digit], mass};
  }
  __device__ best_part reached_at(index_t i) const {
    return {static_cast<index_t>(scratch_.reached[i]), static_cast<index_t>(scratch_.reached[i + 1]),
            scratch_.reached[i + 2]};
  }

  block_threads& block_;
  best_scratch<Threads>& scratch_;
  Items items_;
  take_limits limits_;
  votes_t least_;
  votes_t wanted_ = 0;
  int shift_ = 0;                // of the words: below it digits are not looked at
  std::uint64_t bound_ = ~none;  // the digits of what reaches a limit; what is above is taken
  bool ties_ = false;            // something has the digits of the bound, and is walked by id
  bool one_tie_ = false;         // it is one item
  best_part better_;             // above the bound
};

/// Writes the taken ids of one walk, ascending. All threads call it; the block sees them after its next barrier.
/// @param ids  [k]  as many as can be taken; padded with -1
/// @return     how many were taken, to all threads
template <index_t Threads, class Items>
__device__ index_t write_best(block_threads& block, best_walk<Threads, Items>& walk, view<index_t> ids) {
  index_t taken = 0;
  walk.each([&](index_t id, index_t part) {
    const scanned<index_t> of_tile = block.sum_before(part > 0 ? 1 : 0);
    if (part > 0) ids[taken + of_tile.before] = id;
    taken += of_tile.all;
  });
  for (index_t i = taken + block.thread(); i < ids.size(); i += Threads) ids[i] = -1;
  return taken;
}

}  // namespace zoomr::inline v0

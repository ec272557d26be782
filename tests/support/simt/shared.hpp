// SPDX-License-Identifier: Apache-2.0
// Part of support/simt.hpp: shared memory that knows who has touched it, and asynchronous copies into it.
//
// Two accesses are ordered if a barrier of the block lies between them, or, within a warp, __syncwarps that lead from
// one to the other; shuffles and atomics order nothing. Each element remembers its last write, and everybody who has
// read it or worked on it atomically since: whether a fault is found does not depend on who came first.
#pragma once

#include <support/simt/block.hpp>

#include <algorithm>    // std::for_each
#include <cstddef>      // std::size_t
#include <type_traits>  // std::is_trivially_copyable_v
#include <utility>      // std::move

namespace simt {

/// The time of a lane, as counted by its __syncwarps.
inline std::uint32_t lane_time(int by, int of) {
  return warp_of(block.now).seen[static_cast<std::size_t>(by)][static_cast<std::size_t>(of)];
}

/// The last one who has written an element.
struct stamp {
  std::uint64_t time;  // of the block; 0: nobody
  std::uint32_t of_lane;
  int by;

  static stamp here() { return {block.time, lane_time(lane(), lane()), block.now}; }
  /// That thread, if what it did is not ordered before what this one does now; or -1.
  int unordered() const {
    if (time != block.time || by == block.now) return -1;
    return by / warp == own_warp() && of_lane <= lane_time(lane(), by % warp) ? -1 : by;
  }
};

/// All who have touched an element since the last barrier of the block.
class stamps {
 public:
  void add() {
    if (time_ != block.time) {
      time_ = block.time;
      warp_ = own_warp();
      lanes_ = 0;
      of_other_warp_ = -1;
    }
    if (warp_ != own_warp()) {
      of_other_warp_ = block.now;
      return;
    }
    lanes_ |= 1u << lane();
    of_lane_[static_cast<std::size_t>(lane())] = lane_time(lane(), lane());
  }
  void clear() { time_ = 0; }

  /// One of them, if what it did is not ordered before what this thread does now; or -1.
  int unordered() const {
    if (time_ != block.time) return -1;
    if (warp_ != own_warp()) return warp_ * warp + std::countr_zero(lanes_);
    for (unsigned left = lanes_ & ~(1u << lane()); left != 0; left &= left - 1) {
      const int other = std::countr_zero(left);
      if (of_lane_[static_cast<std::size_t>(other)] > lane_time(lane(), other)) return warp_ * warp + other;
    }
    return of_other_warp_;
  }

 private:
  std::uint64_t time_;
  std::array<std::uint32_t, warp> of_lane_;
  unsigned lanes_;  // of the warp of the first one
  int warp_;
  int of_other_warp_;  // or -1
};

/// What has happened to an element of shared memory: nothing, if all is zero. Without initialisers, so that the many
/// elements of an array are zero as a whole and not one by one.
struct word_history {
  stamp written;
  stamps read;
  stamps atomic;
  std::uint64_t copy_began;
};

[[noreturn]] inline void fail_at(shared_word word, const std::string& sentence) {
  fail(sentence + "; element " + std::to_string(word.element) + " of " + std::to_string(word.elements));
}

inline void must_be_written(shared_word word) {
  if (word.history->written.time >= block.began) return;
  fail_at(word, word.history->written.time == 0 ? "shared memory is read that nobody has written"
                                                : "shared memory is read that only an earlier block has written");
}

inline void must_not_be_copied(shared_word word, const char* done) {
  if (word.history->copy_began < block.began) return;
  fail_at(word, std::string("shared memory is ") + done + " while a copy into it is under way");
}

inline void must_follow(shared_word word, int other, const char* done) {
  if (other < 0) return;
  fail_at(word, std::string("shared memory is ") + done + ", with no barrier between: thread " + std::to_string(other));
}

inline void note_read(shared_word word) {
  step();
  must_not_be_copied(word, "read");
  must_be_written(word);
  must_follow(word, word.history->written.unordered(), "read that another thread has written");
  must_follow(word, word.history->atomic.unordered(), "read that another thread has written");
  word.history->read.add();
}

inline void wrote(shared_word word) {
  word.history->written = stamp::here();
  word.history->read.clear();
  word.history->atomic.clear();
}

inline void note_write(shared_word word) {
  step();
  must_not_be_copied(word, "written");
  must_follow(word, word.history->read.unordered(), "written that another thread has read");
  must_follow(word, word.history->written.unordered(), "written by two threads");
  must_follow(word, word.history->atomic.unordered(), "written by two threads");
  wrote(word);
}

inline void note_atomic(shared_word word) {
  must_not_be_copied(word, "read");
  must_be_written(word);
  must_follow(word, word.history->read.unordered(), "written that another thread has read");
  must_follow(word, word.history->written.unordered(), "read that another thread has written");
  word.history->atomic.add();
}

template <class T>
struct shared_address {
  T* at;
  shared_word word;
};

/// An element of a shared array: what `T&` is on a device. One that has a name cannot be used: `auto x = a[i]` would be
/// a reference here and a value there.
template <class T>
class shared_reference {
 public:
  shared_reference(T* at, shared_word word) : at_(at), word_(word) {}
  shared_reference(const shared_reference&) = default;

  operator T() const&& {
    note_read(word_);
    return *at_;
  }
  shared_reference operator=(const T& value) const&& {
    note_write(word_);
    *at_ = value;
    return *this;
  }
  shared_reference operator=(shared_reference&& other) const&& {
    return std::move(*this) = static_cast<T>(std::move(other));
  }
  shared_address<T> operator&() const&& { return {at_, word_}; }

  // clang-format off
  auto operator+=(const T& value) const&& { return change([&](T old) { return static_cast<T>(old + value); }); }
  auto operator-=(const T& value) const&& { return change([&](T old) { return static_cast<T>(old - value); }); }
  auto operator*=(const T& value) const&& { return change([&](T old) { return static_cast<T>(old * value); }); }
  auto operator|=(const T& value) const&& { return change([&](T old) { return static_cast<T>(old | value); }); }
  auto operator&=(const T& value) const&& { return change([&](T old) { return static_cast<T>(old & value); }); }
  auto operator^=(const T& value) const&& { return change([&](T old) { return static_cast<T>(old ^ value); }); }
  auto operator++() const&& { return change([](T old) { return static_cast<T>(old + 1); }); }
  auto operator--() const&& { return change([](T old) { return static_cast<T>(old - 1); }); }
  // clang-format on

 private:
  template <class Change>
  shared_reference change(Change made) const {
    note_read(word_);
    const T now = made(*at_);
    note_write(word_);
    *at_ = now;
    return *this;
  }

  T* at_;
  shared_word word_;
};

template <class T, std::int32_t N>
class alignas(16) shared_array {
 public:
  shared_reference<T> operator[](std::int32_t i) {
    if (i < 0 || i >= N) fail("index " + std::to_string(i) + " of a shared array of " + std::to_string(N));
    return {&at_[i], {&history_[i], i, N}};
  }

 private:
  T at_[std::size_t{N}] = {};
  word_history history_[std::size_t{N}] = {};
};

// Asynchronous copies. The bytes arrive as late as they may: when the thread waits for them.

template <class T>
void copy_async(shared_reference<T> to, const T* from) {
  static_assert(sizeof(T) == 16 && std::is_trivially_copyable_v<T>, "asynchronous copies are of 16 bytes");
  if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
    fail("an asynchronous copy from an address that is not aligned");
  const shared_address<T> address = &std::move(to);
  note_write(address.word);
  address.word.history->copy_began = block.time;
  copy_under_way copy{address.at, from, address.word, {}};
  std::memcpy(copy.sent.data(), from, sizeof(T));
  self().copies.push_back(copy);
  ++self().in_no_batch;
}

inline void copy_async_commit() {
  self().batches.push_back(self().in_no_batch);
  self().in_no_batch = 0;
}

inline void arrive(const copy_under_way& copy) {
  if (std::memcmp(copy.from, copy.sent.data(), copy.sent.size()) != 0) {
    fail_at(copy.word, "the source of an asynchronous copy changes while the copy is under way");
  }
  std::memcpy(copy.to, copy.from, copy.sent.size());
  copy.word.history->copy_began = 0;
  wrote(copy.word);
}

template <int Batches>
void copy_async_wait() {
  thread_state& me = self();
  while (me.batches.size() > std::size_t{Batches}) {
    const auto last = me.copies.begin() + static_cast<std::ptrdiff_t>(me.batches.front());
    std::for_each(me.copies.begin(), last, arrive);
    me.copies.erase(me.copies.begin(), last);
    me.batches.erase(me.batches.begin());
  }
}

}  // namespace simt

// SPDX-License-Identifier: Apache-2.0
// L3. Reads of a file that are under way together, by io_uring.
//
// Only where ZOOMR_LIBURING is defined, the same in all sources of a program, which is linked with liburing (-luring),
// and where the kernel does not refuse; elsewhere nothing is ever begun. What is begun here is finished by whoever
// reads with pread: errors, interruptions and short reads are his, and have one place. block_file owns the ring.
#pragma once

#include <zoomr/core/types.hpp>

#if defined(ZOOMR_LIBURING)
#include <liburing.h>

#include <algorithm>  // std::find_if, std::min
#endif

namespace zoomr::inline v0 {

#if defined(ZOOMR_LIBURING)

/// Reads that were begun, told apart by where they go.
///
/// One thread at a time. The kernel may finish a read in the thread that has begun it, whatever that does meanwhile; if
/// it ends, the read may fail.
class read_ring {
 public:
  static constexpr index_t places = 32;  // reads that can be under way

  /// @param most  reads that may be under way, up to `places`; 0: none ever is
  explicit read_ring(index_t most) : most_((std::min)(most, places)) {
    if (most_ > 0 && io_uring_queue_init(places, &ring_, 0) != 0) most_ = 0;
    open_ = most_ > 0;
  }
  read_ring(const read_ring&) = delete;
  read_ring& operator=(const read_ring&) = delete;
  ~read_ring() {
    for (read& each : reads_) {
      if (each.to != nullptr) finish(each.to);
    }
    if (open_) io_uring_queue_exit(&ring_);
  }

  bool works() const { return most_ > 0; }

  /// Begins a read. What the system has in memory has come, as a rule, when this returns.
  /// @param to  `bytes` bytes, which nothing else touches until they are finished
  /// @return    false if nothing was begun: there is no ring, or no place
  bool begin(int file, void* to, byte_count bytes, byte_count at) {
    if (under_way_ >= most_) return false;
    read* const free = find(nullptr);
    io_uring_sqe* const request = io_uring_get_sqe(&ring_);
    io_uring_prep_read(request, file, to, static_cast<unsigned>((std::min)(bytes, most_bytes)),
                       static_cast<std::uint64_t>(at));
    request->user_data = static_cast<std::uint64_t>(free - reads_);
    if (io_uring_submit(&ring_) != 1) {
      most_ = 0;  // a kernel that has refused once is not asked again
      return false;
    }
    *free = {.to = to};
    ++under_way_;
    io_uring_cqe* one = nullptr;
    while (!free->done && io_uring_peek_cqe(&ring_, &one) == 0) take(one);
    free->late = !free->done;
    return true;
  }

  /// Whether a read that was begun did not come at once, but from a disk.
  bool comes_late(const void* to) {
    const read* const found = find(to);
    return found != reads_ + places && found->late;
  }

  /// Waits for a read, if one was begun, and frees its place.
  /// @return  bytes that have come to `to`; 0 if it has failed, or was not begun
  byte_count finish(const void* to) {
    if (under_way_ == 0) return 0;
    read* const wanted = find(to);
    if (wanted == reads_ + places) return 0;
    while (!wanted->done) {
      io_uring_cqe* one = nullptr;
      if (io_uring_wait_cqe(&ring_, &one) == 0) take(one);  // else interrupted
    }
    --under_way_;
    wanted->to = nullptr;
    return (std::max)(wanted->came, 0);
  }

 private:
  struct read {
    void* to = nullptr;  // nullptr: a free place
    bool done = false;
    bool late = false;
    int came = 0;  // bytes; negative: the error
  };

  static constexpr byte_count most_bytes = byte_count{1} << 30;

  read* find(const void* to) {
    return std::find_if(reads_, reads_ + places, [&](const read& each) { return each.to == to; });
  }
  // Notes what the kernel says of a read that is done, whichever it is.
  void take(io_uring_cqe* one) {
    read& entry = reads_[one->user_data];
    entry.came = one->res;
    entry.done = true;
    io_uring_cqe_seen(&ring_, one);
  }

  io_uring ring_ = {};
  bool open_ = false;
  index_t most_;
  index_t under_way_ = 0;
  read reads_[places];
};

#else

/// None: everything is read when its turn comes.
class read_ring {
 public:
  static constexpr index_t places = 32;

  explicit read_ring(index_t) {}
  bool works() const { return false; }
  bool begin(int, void*, byte_count, byte_count) { return false; }
  bool comes_late(const void*) { return false; }
  byte_count finish(const void*) { return 0; }
};

#endif

}  // namespace zoomr::inline v0

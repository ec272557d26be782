// SPDX-License-Identifier: Apache-2.0
// Stands for liburing in tests (with ZOOMR_LIBURING): a ring under the test's control, on any machine. Reads are made
// by pread in any order, as late as the ring likes; until then what they fill is rubbish.
#pragma once

#include <unistd.h>  // pread

#include <cerrno>      // errno, ENOSYS
#include <cstdint>     // std::uint64_t
#include <cstring>     // std::memset
#include <functional>  // std::function

/// What rings do; set before they are made.
struct ring_script {
  bool refused = false;       // no ring can be made
  std::int64_t submits = 0;   // reads that were begun so far
  std::int64_t fails = -1;    // to begin this one, counted from 0, is refused
  std::uint64_t dice = 1;     // the order
  std::uint64_t at_once = 1;  // thirds of the reads that come as soon as they are begun
  bool in_ring = false;       // a call of pread comes from here
  // Of a read into `to`, what it has brought, or a negative error; the result is given instead.
  std::function<int(void* to, int came)> finished = [](void*, int came) { return came; };
};

inline ring_script& ring() {
  static ring_script one;
  return one;
}

struct io_uring_sqe {
  int file;
  void* to;
  unsigned bytes;
  std::uint64_t at;
  std::uint64_t user_data;
};

struct io_uring_cqe {
  std::uint64_t user_data;
  int res;
};

struct io_uring {
  static constexpr unsigned most = 64;
  unsigned entries = 0;
  unsigned asked = 0;    // submissions that were not submitted
  unsigned waiting = 0;  // reads that were not made
  unsigned made = 0;     // completions that were not taken
  io_uring_sqe submissions[most];
  io_uring_sqe reads[most];
  io_uring_cqe completions[most];
};

inline std::uint64_t next_die() {
  ring().dice = ring().dice * 6364136223846793005u + 1442695040888963407u;
  return ring().dice >> 33;
}

/// Makes one of the reads that wait.
inline void make_read(io_uring* of) {
  io_uring_sqe& chosen = of->reads[next_die() % of->waiting];
  const io_uring_sqe read = chosen;
  chosen = of->reads[--of->waiting];
  ring().in_ring = true;
  const ssize_t came = pread(read.file, read.to, read.bytes, static_cast<off_t>(read.at));
  ring().in_ring = false;
  const int result = came < 0 ? -errno : static_cast<int>(came);
  of->completions[of->made++] = {read.user_data, ring().finished(read.to, result)};
}

inline int io_uring_queue_init(unsigned entries, io_uring* of, unsigned) {
  if (ring().refused || entries > io_uring::most) return -ENOSYS;
  *of = {};
  of->entries = entries;
  return 0;
}

inline void io_uring_queue_exit(io_uring*) {}

inline io_uring_sqe* io_uring_get_sqe(io_uring* of) {
  return of->asked < of->entries ? &of->submissions[of->asked++] : nullptr;
}

inline void io_uring_prep_read(io_uring_sqe* asked, int file, void* to, unsigned bytes, std::uint64_t at) {
  *asked = {file, to, bytes, at, 0};
}

inline int io_uring_submit(io_uring* of) {
  if (ring().submits++ == ring().fails) return -EAGAIN;
  const int submitted = static_cast<int>(of->asked);
  for (unsigned i = 0; i < of->asked; ++i) {
    const io_uring_sqe& each = of->reads[of->waiting++] = of->submissions[i];
    std::memset(each.to, 0xee, each.bytes);
  }
  of->asked = 0;
  while (of->waiting > 0 && next_die() % 3 < ring().at_once) make_read(of);
  return submitted;
}

inline int io_uring_peek_cqe(io_uring* of, io_uring_cqe** one) {
  if (of->made == 0) return -EAGAIN;
  *one = &of->completions[next_die() % of->made];
  return 0;
}

/// @return -EINTR now and then
inline int io_uring_wait_cqe(io_uring* of, io_uring_cqe** one) {
  if (next_die() % 4 == 0) return -EINTR;
  if (of->made == 0) make_read(of);
  return io_uring_peek_cqe(of, one);
}

inline void io_uring_cqe_seen(io_uring* of, io_uring_cqe* one) { *one = of->completions[--of->made]; }

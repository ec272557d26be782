// SPDX-License-Identifier: Apache-2.0
// The system's calls on one file, in place of the C library's: they are counted, some go wrong, and a process can be
// killed before or after each. Included by one source of a program. Allocates nothing.
#pragma once

#include <dlfcn.h>   // dlsym
#include <fcntl.h>   // open
#include <unistd.h>  // pread, pwrite, unlink

#include <cerrno>       // errno
#include <csignal>      // raise
#include <cstdarg>      // va_list
#include <cstdint>      // std::int64_t
#include <cstring>      // std::strcmp
#include <functional>   // std::function
#include <string_view>  // std::string_view

namespace file_calls {

enum class fault {
  none,
  error,        // EIO
  full,         // ENOSPC
  interrupted,  // EINTR
  partial,      // half of the bytes; of calls that move none, nothing
  flipped,      // one bit is another one, on the disk too
};

enum class call { make, give_room, read, write };

/// The file and what happens to it; one thread at a time calls.
struct script {
  const char* path = nullptr;
  std::int64_t fails = -1;  // this call, counted from 0
  std::int64_t every = 0;   // and from then on one in so many; 0: no other
  fault how = fault::error;
  int file = -1;
  std::int64_t made = 0;
  bool in_write = false;   // the one that went wrong was a write
  std::int64_t ahead = 0;  // reads that the system was told of beforehand, which it refuses with `deaf`
  bool deaf = false;

  const std::function<fault(call)>* chooses = nullptr;  // instead of `fails`, for each call
  bool named = false;                                   // the file system knows no files without a name
  std::int64_t dies = -1;                               // the process is killed at this point, counted from 0
  std::int64_t points = 0;                              // so far: one before and one after each call that makes a file
  const std::function<void()>* in_gap = nullptr;        // called once when a file with a name was made
};
inline script now;

/// What goes wrong with this call.
inline fault chosen(call which) {
  if (now.chooses != nullptr) return (*now.chooses)(which);
  const std::int64_t since = now.made++ - now.fails;
  const bool wrong = now.fails >= 0 && (now.every > 0 ? since >= 0 && since % now.every == 0 : since == 0);
  if (!wrong) return fault::none;
  now.in_write = which == call::write;
  return now.how;
}
/// errno of a call that fails; 0: it does not.
inline int failure_of(fault how) {
  return how == fault::error ? EIO : how == fault::full ? ENOSPC : how == fault::interrupted ? EINTR : 0;
}

/// A point at which the process may be killed.
inline void point() {
  if (now.points++ == now.dies) ::raise(SIGKILL);
}

/// Whether a call makes the file: by its own name, by another one beside it, or without a name in its folder.
inline bool is_ours(const char* path) {
  if (now.path == nullptr) return false;
  const std::string_view ours = now.path, given = path;
  const bool beside = given.starts_with(ours) && given.substr(ours.size()) == ".zoomr-tier";
  return given == ours || beside || given == ours.substr(0, ours.rfind('/') + 1);
}

template <class Call>
Call* real(const char* name) {
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, name));
}

}  // namespace file_calls

extern "C" {

int open(const char* path, int flags, ...) {
  const bool nameless = (flags & O_TMPFILE) == O_TMPFILE;
  va_list more;
  va_start(more, flags);
  const mode_t mode = nameless || (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  static const auto made = file_calls::real<int(const char*, int, ...)>("open");
  if (!file_calls::is_ours(path)) return made(path, flags, mode);
  if (nameless && file_calls::now.named) {
    errno = EOPNOTSUPP;
    return -1;
  }
  file_calls::point();
  errno = file_calls::failure_of(file_calls::chosen(file_calls::call::make));
  if (errno != 0) return -1;
  const int file = made(path, flags, mode);
  const int why = errno;
  file_calls::point();
  if (!nameless && file >= 0 && file_calls::now.in_gap != nullptr) {
    const auto& in_gap = *file_calls::now.in_gap;
    file_calls::now.in_gap = nullptr;
    in_gap();
  }
  if (file >= 0) file_calls::now.file = file;
  errno = why;
  return file;
}

int unlink(const char* path) noexcept {
  static const auto made = file_calls::real<int(const char*)>("unlink");
  if (!file_calls::is_ours(path)) return made(path);
  file_calls::point();
  const int done = made(path);
  const int why = errno;
  file_calls::point();
  errno = why;
  return done;
}

int posix_fallocate(int file, off_t first, off_t bytes) {
  static const auto made = file_calls::real<int(int, off_t, off_t)>("posix_fallocate");
  if (file != file_calls::now.file) return made(file, first, bytes);
  file_calls::point();
  const int failure = file_calls::failure_of(file_calls::chosen(file_calls::call::give_room));
  const int done = failure != 0 ? failure : made(file, first, bytes);
  file_calls::point();
  return done;
}

int posix_fadvise(int file, off_t first, off_t bytes, int advice) noexcept {
  static const auto made = file_calls::real<int(int, off_t, off_t, int)>("posix_fadvise");
  if (file != file_calls::now.file) return made(file, first, bytes, advice);
  ++file_calls::now.ahead;
  return file_calls::now.deaf ? EINVAL : made(file, first, bytes, advice);
}

ssize_t pread(int file, void* to, size_t bytes, off_t at) {
  using file_calls::fault;
  static const auto made = file_calls::real<ssize_t(int, void*, size_t, off_t)>("pread");
  if (file != file_calls::now.file) return made(file, to, bytes, at);
  const fault how = file_calls::chosen(file_calls::call::read);
  if (how == fault::none) return made(file, to, bytes, at);
  errno = file_calls::failure_of(how);
  if (errno != 0) return -1;
  const ssize_t moved = made(file, to, how == fault::partial ? (bytes + 1) / 2 : bytes, at);
  if (how == fault::flipped) static_cast<char*>(to)[bytes / 3] ^= 4;
  return moved;
}

ssize_t pwrite(int file, const void* from, size_t bytes, off_t at) {
  using file_calls::fault;
  static const auto made = file_calls::real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  const fault how = file != file_calls::now.file ? fault::none : file_calls::chosen(file_calls::call::write);
  if (how == fault::none) return made(file, from, bytes, at);
  errno = file_calls::failure_of(how);
  if (errno != 0) return -1;
  const ssize_t moved = made(file, from, how == fault::partial ? (bytes + 1) / 2 : bytes, at);
  const char other = static_cast<const char*>(from)[bytes / 3] ^ 4;
  if (how == fault::flipped) made(file, &other, 1, at + static_cast<off_t>(bytes / 3));
  return moved;
}

}  // extern "C"

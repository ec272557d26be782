// SPDX-License-Identifier: Apache-2.0
// L6. Where a saved sequence goes, and where it comes from: bytes in order, never taken back, never skipped. Files are
// ready-made; anything else (memory, a socket, an archive) is a class of a few lines.
#pragma once

#include <zoomr/core/buffer.hpp>
#include <zoomr/core/error.hpp>

#include <fcntl.h>     // open, fcntl
#include <sys/stat.h>  // stat, fchmod
#include <unistd.h>    // read, write, fsync, ftruncate, unlink, close, readlink, getpid

#include <algorithm>     // std::min
#include <cerrno>        // errno
#include <charconv>      // std::from_chars
#include <cstdio>        // std::rename
#include <cstdlib>       // realpath, std::free
#include <cstring>       // std::memcpy, std::strlen
#include <string>        // std::string
#include <system_error>  // std::generic_category
#include <utility>       // std::move

namespace zoomr::inline v0 {

/// Takes the bytes of `kv_cache::save`. What it throws leaves `save` as it is; the sequence is unchanged then.
/// A cache must not be called from here.
class byte_sink {
 public:
  virtual ~byte_sink() = default;
  /// Takes all of them. Pieces are small or large.
  /// @param from  `bytes` bytes, which are the cache's again afterwards
  virtual void write(const void* from, byte_count bytes) = 0;
  /// The last byte of a sequence has come: the last chance to report that some were lost.
  virtual void finish() {}
};

/// Gives the bytes of `kv_cache::load`. What it throws leaves `load` as it is; the cache is unchanged then.
/// A cache must not be called from here.
class byte_source {
 public:
  virtual ~byte_source() = default;
  /// Gives the next `bytes` bytes. Those after a sequence are never read, so that others may follow it.
  /// @return  how many it has given; fewer only if there are no more
  virtual byte_count read(void* to, byte_count bytes) = 0;
};

namespace detail {

/// An open file, and 64 KiB of its bytes.
class stream_file {
 public:
  // descriptor: an open file to go on with; -1: the one of that path
  stream_file(std::string path, int how, const char* done, int descriptor = -1)
      : path_(std::move(path)), memory_(byte_count{1} << 16) {
    do file_ = descriptor < 0 ? ::open(path_.c_str(), how | O_CLOEXEC, 0666) : ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    while (file_ < 0 && errno == EINTR);
    if (file_ < 0) fail(done);
  }
  stream_file(const stream_file&) = delete;
  stream_file& operator=(const stream_file&) = delete;

 protected:
  ~stream_file() { ::close(file_); }

  [[noreturn]] void fail(const char* done) const {
    const int code = errno;
    detail::raise(errc::storage,
                  "the file " + path_ + " cannot be " + done + ": " + std::generic_category().message(code));
  }
  // One call that is made again if it is interrupted.
  template <class Call>
  static auto patiently(Call call) {
    auto came = call();
    while (came < 0 && errno == EINTR) came = call();
    return came;
  }

  std::string path_;
  int file_ = -1;
  buffer<char> memory_;
  byte_count first_ = 0;  // of the bytes in it
  byte_count last_ = 0;   // exclusive
};

/// Where the links of a path end, also where that is a file yet to be made.
struct link_end {
  explicit link_end(std::string path) : name(std::move(path)) {
    constexpr int most_links = 40;  // as the system has it
    char target[4096];
    for (int links = 0; links < most_links; ++links) {
      const auto slash = name.rfind('/');
      const std::string folder = slash == name.npos ? "./" : name.substr(0, slash + 1);
      descriptor = descriptor_in(folder, name.c_str() + (slash == name.npos ? 0 : slash + 1));
      const auto bytes = ::readlink(name.c_str(), target, sizeof target);
      if (descriptor >= 0 || bytes <= 0 || bytes == static_cast<ssize_t>(sizeof target)) return;
      const std::string next(target, static_cast<std::size_t>(bytes));
      name = next[0] == '/' ? next : folder + next;
    }
  }

  std::string name;
  int descriptor = -1;  // what /dev/stdout, /dev/fd/N and /proc/self/fd/N are; -1: it is none

 private:
  // What these look like links to has a position of its own: opened by its name, it is another open file.
  static int descriptor_in(const std::string& folder, const char* file) {
    char* const real = ::realpath(folder.c_str(), nullptr);
    const std::string found = real == nullptr ? "" : real;
    std::free(real);
    const std::string process = "/proc/" + std::to_string(::getpid()) + "/";
    if (found.compare(0, process.size(), process) != 0 || found.substr(found.rfind('/')) != "/fd") return -1;
    int number = -1;
    const char* const end = file + std::strlen(file);
    const auto [last, wrong] = std::from_chars(file, end, number);
    return wrong == std::errc() && last == end ? number : -1;
  }
};

/// Where a file is written that replaces the one at `path` in the end.
struct replaced_file {
  explicit replaced_file(const std::string& path) : name(path) {
    const link_end end(path);  // a link stays one
    descriptor = end.descriptor;
    struct stat file;
    const bool is_there = ::stat(path.c_str(), &file) == 0;
    if (descriptor >= 0 || (is_there && !S_ISREG(file.st_mode))) return;
    name = end.name;
    part = name + ".part";
    if (is_there) mode = file.st_mode & 07777;
  }

  std::string name;
  std::string part;     // empty: what is there is no file, but a device, a pipe or a descriptor
  int descriptor = -1;  // -1: none
  mode_t mode = 0;      // of the file that is there; 0: none is
};

}  // namespace detail

/// A file that is written from its beginning. Bytes go to PATH.part. The first `finish` gives it the name PATH, when
/// the disk has it all: until then an older file stays as it was. Bytes that come later are appended, and count from
/// the next `finish` on.
///
/// Where a write fails, or the sink is destroyed, what came after the last `finish` is taken away: PATH.part is
/// removed, or the file ends where it ended then. After a save that failed a sink is of no further use. If the process
/// is killed, PATH.part may be left, or a file with half of a sequence at its end, which `load` refuses.
///
/// A device or a pipe is written to as it is, and so is what a descriptor stands for: /dev/stdout, /dev/fd/N.
/// @throws error(storage) from all functions, with the system's reason; error(capacity) without 64 KiB of memory
class file_sink final : public byte_sink, private detail::stream_file {
 public:
  explicit file_sink(const std::string& path) : file_sink(detail::replaced_file(path)) {}
  ~file_sink() override { take_back(); }

  void write(const void* from, byte_count bytes) override {
    if (last_ + bytes > memory_.bytes()) flush();
    if (bytes >= memory_.bytes()) return write_out(static_cast<const char*>(from), bytes);
    std::memcpy(memory_.data() + last_, from, static_cast<std::size_t>(bytes));
    last_ += bytes;
  }
  void finish() override {
    flush();
    sync(file_);
    if (unnamed_) {
      if (::rename(path_.c_str(), as_.name.c_str()) != 0) fail_writing();
      unnamed_ = false;
      path_ = as_.name;
      sync_folder();
    }
    finished_ = written_;
  }

 private:
  explicit file_sink(detail::replaced_file as)
      : stream_file(as.part.empty() ? as.name : as.part, O_WRONLY | O_CREAT | O_TRUNC, "made", as.descriptor),
        as_(std::move(as)),
        unnamed_(!as_.part.empty()) {
    if (as_.mode != 0 && ::fchmod(file_, as_.mode) != 0) fail_writing();
  }

  void flush() {
    const byte_count bytes = last_;
    last_ = 0;
    write_out(memory_.data(), bytes);
  }
  void write_out(const char* from, byte_count bytes) {
    while (bytes > 0) {
      const auto done = patiently([&] { return ::write(file_, from, static_cast<std::size_t>(bytes)); });
      if (done < 0) fail_writing();
      from += done;
      bytes -= done;
      written_ += done;
    }
  }
  void sync(int file) {
    const bool synced = patiently([&] { return ::fsync(file); }) == 0;
    if (!synced && errno != EINVAL && errno != EROFS && errno != ENOTSUP) fail_writing();  // a pipe cannot be synced
  }
  // The new name is in the folder.
  void sync_folder() {
    const std::string folder = as_.name.substr(0, as_.name.rfind('/') + 1);
    const int opened = patiently([&] { return ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC); });
    if (opened < 0) return;  // one that may be written to, but not be read
    patiently([&] { return ::fsync(opened); });
    ::close(opened);
  }

  [[noreturn]] void fail_writing() {
    const int code = errno;
    take_back();
    errno = code;
    fail("written");
  }
  // Once.
  void take_back() {
    if (as_.part.empty()) return;
    if (unnamed_) {
      ::unlink(path_.c_str());
    } else if (written_ > finished_) {
      patiently([&] { return ::ftruncate(file_, finished_); });
    }
    as_.part.clear();
  }

  detail::replaced_file as_;
  bool unnamed_;
  byte_count written_ = 0;
  byte_count finished_ = 0;  // of them
};

/// A file that is read from its beginning. It may hold several sequences, one after the other.
/// @throws error(storage) from all functions, with the system's reason; error(capacity) without 64 KiB of memory
class file_source final : public byte_source, private detail::stream_file {
 public:
  explicit file_source(const std::string& path) : stream_file(path, O_RDONLY, "opened") {}

  byte_count read(void* to, byte_count bytes) override {
    byte_count taken = 0;
    while (taken < bytes) {
      if (first_ == last_) {
        const auto came =
            patiently([&] { return ::read(file_, memory_.data(), static_cast<std::size_t>(memory_.bytes())); });
        if (came < 0) fail("read");
        if (came == 0) break;
        first_ = 0;
        last_ = came;
      }
      const byte_count part = (std::min)(bytes - taken, last_ - first_);
      std::memcpy(static_cast<char*>(to) + taken, memory_.data() + first_, static_cast<std::size_t>(part));
      taken += part;
      first_ += part;
    }
    return taken;
  }
};

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L6. Where a saved sequence goes, and where it comes from: bytes in order, never taken back, never skipped. Files are
// ready-made; anything else (memory, a socket, an archive) is a class of a few lines.
#pragma once

#include <zoomr/core/buffer.hpp>
#include <zoomr/core/error.hpp>

#include <fcntl.h>   // open
#include <unistd.h>  // read, write, fsync, close

#include <algorithm>     // std::min
#include <cerrno>        // errno
#include <cstring>       // std::memcpy
#include <string>        // std::string
#include <system_error>  // std::generic_category

namespace zoomr {
inline namespace v0 {

/// Takes the bytes of `kv_cache::save`. What it throws leaves `save` as it is; the sequence is unchanged then.
/// A cache must not be called from here.
class byte_sink {
 public:
  virtual ~byte_sink() = default;
  /// Takes all of them. Pieces are small or large.
  /// @param from  `bytes` bytes, which are the cache's again afterwards
  virtual void write(const void* from, byte_count bytes) = 0;
  /// The last byte of a sequence has come: the last chance to say that some were lost.
  virtual void finish() {}
};

/// Gives the bytes of `kv_cache::load`. What it throws leaves `load` as it is; the cache is unchanged then.
/// A cache must not be called from here.
class byte_source {
 public:
  virtual ~byte_source() = default;
  /// Gives the next `bytes` bytes. Those behind a sequence are never asked for, so that others may follow it.
  /// @return  how many it has given; fewer only if there are no more
  virtual byte_count read(void* to, byte_count bytes) = 0;
};

namespace detail {

/// An open file, and 64 KiB of its bytes.
class stream_file {
 public:
  stream_file(const std::string& path, int how, const char* done) : path_(path), memory_(byte_count{1} << 16) {
    do file_ = ::open(path.c_str(), how | O_CLOEXEC, 0666);
    while (file_ < 0 && errno == EINTR);
    if (file_ < 0) fail(done);
  }
  stream_file(const stream_file&) = delete;
  stream_file& operator=(const stream_file&) = delete;

 protected:
  ~stream_file() { ::close(file_); }

  [[noreturn]] void fail(const char* done) const {
    const int why = errno;
    detail::raise(errc::storage,
                  "the file " + path_ + " cannot be " + done + ": " + std::generic_category().message(why));
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

}  // namespace detail

/// A file that is written from its beginning: what it held before is gone. `finish` waits until the disk has it all. A
/// save that has failed leaves a file that `load` refuses. If an older file must outlive that, save beside it, and
/// rename.
/// @throws error(storage) from all functions, with the system's reason; error(capacity) without 64 KiB of memory
class file_sink final : public byte_sink, private detail::stream_file {
 public:
  explicit file_sink(const std::string& path) : stream_file(path, O_WRONLY | O_CREAT | O_TRUNC, "made") {}

  void write(const void* from, byte_count bytes) override {
    if (last_ + bytes > memory_.bytes()) flush();
    if (bytes >= memory_.bytes()) return write_out(static_cast<const char*>(from), bytes);
    std::memcpy(memory_.data() + last_, from, static_cast<std::size_t>(bytes));
    last_ += bytes;
  }
  void finish() override {
    flush();
    const bool synced = patiently([&] { return ::fsync(file_); }) == 0;
    if (!synced && errno != EINVAL && errno != EROFS && errno != ENOTSUP) fail("written");  // a pipe cannot be synced
  }

 private:
  void flush() {
    const byte_count bytes = last_;
    last_ = 0;
    write_out(memory_.data(), bytes);
  }
  void write_out(const char* from, byte_count bytes) {
    while (bytes > 0) {
      const auto done = patiently([&] { return ::write(file_, from, static_cast<std::size_t>(bytes)); });
      if (done < 0) fail("written");
      from += done, bytes -= done;
    }
  }
};

/// A file that is read from its beginning. It may hold several sequences, one behind the other.
/// @throws error(storage) from all functions, with the system's reason; error(capacity) without 64 KiB of memory
class file_source final : public byte_source, private detail::stream_file {
 public:
  explicit file_source(const std::string& path) : stream_file(path, O_RDONLY, "opened") {}

  byte_count read(void* to, byte_count bytes) override {
    byte_count given = 0;
    while (given < bytes) {
      if (first_ == last_) {
        const auto came =
            patiently([&] { return ::read(file_, memory_.data(), static_cast<std::size_t>(memory_.bytes())); });
        if (came < 0) fail("read");
        if (came == 0) break;
        first_ = 0, last_ = came;
      }
      const byte_count part = (std::min)(bytes - given, last_ - first_);
      std::memcpy(static_cast<char*>(to) + given, memory_.data() + first_, static_cast<std::size_t>(part));
      given += part, first_ += part;
    }
    return given;
  }
};

}  // namespace v0
}  // namespace zoomr

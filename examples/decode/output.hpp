// SPDX-License-Identifier: Apache-2.0
// What a program writes, so that nothing is lost unsaid: the standard output and files throw at the first byte that
// cannot be written, with the system's reason, and a file gets its name when it is whole.
#pragma once

#include <fcntl.h>     // open, fcntl
#include <sys/stat.h>  // stat, fchmod
#include <unistd.h>    // write, close, unlink, access

#include <array>         // std::array
#include <cerrno>        // errno
#include <csignal>       // std::signal
#include <cstdio>        // std::rename
#include <cstring>       // std::strerror
#include <filesystem>    // std::filesystem::canonical
#include <iostream>      // std::cout, std::cerr
#include <new>           // std::bad_alloc
#include <ostream>       // std::ostream
#include <streambuf>     // std::streambuf
#include <string>        // std::string
#include <string_view>   // std::string_view
#include <system_error>  // std::error_code
#include <utility>       // std::exchange, std::move

#include "input_error.hpp"

namespace decode {

/// Writes all of `bytes`, also where the system takes them in parts.
/// @return  0, or errno
inline int write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// The buffer of a stream that throws where bytes are lost; the stream must let exceptions pass (std::ios::badbit).
class checked_buffer : public std::streambuf {
 public:
  /// @param file  a descriptor, which stays the caller's
  /// @param name  for the complaint
  checked_buffer(int file, std::string name) : file_(file), name_(std::move(name)) { begin(); }

 protected:
  /// @throws input_error  "NAME: cannot be written: REASON"
  int_type overflow(int_type c) override {
    sync();
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    *pptr() = traits_type::to_char_type(c);
    pbump(1);
    return c;
  }
  int sync() override {
    const std::string_view bytes(pbase(), static_cast<std::size_t>(pptr() - pbase()));
    begin();  // what could not be written is not tried again
    if (const int error = write_all(file_, bytes)) fail(name_, ": cannot be written: ", std::strerror(error));
    return 0;
  }

 private:
  void begin() { setp(bytes_.data(), bytes_.data() + bytes_.size()); }

  int file_;
  std::string name_;
  std::array<char, 1 << 15> bytes_;
};

/// A file that is whole or absent. It is written beside the place that it is for and renamed by `finish`; without
/// that, whatever ends the writing, the place stays as it was. What is no regular file (a device, a pipe) is written
/// directly, and so is a file in a folder where none can be made.
class output_file {
 public:
  /// @throws input_error  "PATH: cannot be written: REASON"
  explicit output_file(const std::string& path)
      : path_(path), file_(open_for(path)), buffer_(file_, path), stream_(&buffer_) {
    stream_.exceptions(std::ios::badbit);
  }
  output_file(const output_file&) = delete;
  output_file& operator=(const output_file&) = delete;
  ~output_file() {
    if (file_ < 0) return;
    ::close(file_);
    if (!written_.empty()) ::unlink(written_.c_str());
  }

  /// Throws input_error where the disk is full.
  std::ostream& stream() { return stream_; }

  /// Gives the file its name.
  /// @throws input_error  if it is not whole
  void finish() {
    stream_.flush();
    const int closed = ::close(std::exchange(file_, -1));
    if (closed == 0 && (written_.empty() || written_ == target_)) return;
    if (closed == 0 && std::rename(written_.c_str(), target_.c_str()) == 0) return;
    const int error = errno;
    if (!written_.empty()) ::unlink(written_.c_str());
    refuse(error);
  }

 private:
  [[noreturn]] void refuse(int error) const { fail(path_, ": cannot be written: ", std::strerror(error)); }

  int open_for(const std::string& path) {
    struct stat there = {};
    const bool exists = ::stat(path.c_str(), &there) == 0;
    if (exists && !S_ISREG(there.st_mode)) return opened(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (exists && ::access(path.c_str(), W_OK) != 0) refuse(errno);
    std::error_code unknown;
    const auto real = std::filesystem::canonical(path, unknown);  // a link stays one
    target_ = unknown ? path : real.string();
    written_ = target_ + "." + std::to_string(::getpid()) + ".part";
    int made = ::open(written_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (made >= 0 && exists) static_cast<void>(::fchmod(made, there.st_mode & 07777));
    if (made >= 0) return made;
    written_ = exists ? "" : target_;  // an unfinished file goes, unless it was there before
    return opened(::open(target_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  }
  int opened(int file) const {
    if (file < 0) refuse(errno);
    return file;
  }

  std::string path_;
  std::string target_;   // path_ without links
  std::string written_;  // what is removed if it is not finished
  int file_;
  checked_buffer buffer_;
  std::ostream stream_;
};

/// std::cout as a stream that throws where bytes are lost. One object, in main.
class standard_output {
 public:
  /// Closed standard streams are replaced by /dev/null, so that no file gets their numbers.
  /// @throws input_error  nobody can read what would be printed
  standard_output() : buffer_(STDOUT_FILENO, "standard output") {
    std::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is an error like others
    bool closed = false;
    for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      if (::fcntl(file, F_GETFD) >= 0 || errno != EBADF) continue;
      closed = closed || file == STDOUT_FILENO;
      static_cast<void>(::open("/dev/null", O_RDWR));
    }
    if (closed) fail("standard output: cannot be written: it is closed");
    before_ = std::cout.rdbuf(&buffer_);
    std::cout.exceptions(std::ios::badbit);
  }
  standard_output(const standard_output&) = delete;
  standard_output& operator=(const standard_output&) = delete;
  ~standard_output() {
    std::cout.exceptions(std::ios::goodbit);
    std::cout.flush();  // what was printed before another error
    std::cout.rdbuf(before_);
  }
  /// @throws input_error  if not all has been written
  void finish() { std::cout.flush(); }

 private:
  checked_buffer buffer_;
  std::streambuf* before_ = nullptr;
};

/// What `main` is: calls run(), and turns an exception into one sentence on standard error and exit status 2.
/// @return  what run() returns, once all that it printed is written
template <class Run>
int run_program(const char* name, Run run) {
  const auto complain = [&](const char* sentence) { std::cerr << name << ": " << sentence << '\n'; };
  try {
    standard_output out;
    const int status = run();
    out.finish();
    return status;
  } catch (const std::bad_alloc&) {
    complain("there is not enough memory");
  } catch (const std::exception& wrong) {
    complain(wrong.what());
  }
  return 2;
}

}  // namespace decode

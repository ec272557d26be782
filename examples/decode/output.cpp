// SPDX-License-Identifier: Apache-2.0
#include "output.hpp"

#include <fcntl.h>     // open, fcntl
#include <sys/stat.h>  // stat, fchmod
#include <unistd.h>    // write, close, unlink, access

#include <cerrno>        // errno
#include <csignal>       // std::signal
#include <cstdio>        // std::rename
#include <cstring>       // std::strerror
#include <filesystem>    // std::filesystem::canonical
#include <system_error>  // std::error_code
#include <utility>       // std::exchange

#include "input_error.hpp"

namespace decode {

int write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

checked_buffer::int_type checked_buffer::overflow(int_type c) {
  sync();
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  *pptr() = traits_type::to_char_type(c);
  pbump(1);
  return c;
}

int checked_buffer::sync() {
  const std::string_view bytes(pbase(), static_cast<std::size_t>(pptr() - pbase()));
  begin();  // what could not be written is not tried again
  if (const int error = write_all(file_, bytes)) fail(name_, ": cannot be written: ", std::strerror(error));
  return 0;
}

output_file::output_file(const std::string& path)
    : path_(path), file_(open_for(path)), buffer_(file_, path), stream_(&buffer_) {
  stream_.exceptions(std::ios::badbit);
}

output_file::~output_file() {
  if (file_ < 0) return;
  ::close(file_);
  if (!written_.empty()) ::unlink(written_.c_str());
}

void output_file::finish() {
  stream_.flush();
  const int closed = ::close(std::exchange(file_, -1));
  if (closed == 0 && (written_.empty() || written_ == target_)) return;
  if (closed == 0 && std::rename(written_.c_str(), target_.c_str()) == 0) return;
  const int error = errno;
  if (!written_.empty()) ::unlink(written_.c_str());
  refuse(error);
}

void output_file::refuse(int error) const { fail(path_, ": cannot be written: ", std::strerror(error)); }

int output_file::open_for(const std::string& path) {
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

int output_file::opened(int file) const {
  if (file < 0) refuse(errno);
  return file;
}

standard_output::standard_output() : buffer_(STDOUT_FILENO, "standard output") {
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

standard_output::~standard_output() {
  std::cout.exceptions(std::ios::goodbit);
  std::cout.flush();  // what was printed before another error
  std::cout.rdbuf(before_);
}

void standard_output::finish() { std::cout.flush(); }

}  // namespace decode

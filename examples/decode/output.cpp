// SPDX-License-Identifier: Apache-2.0
#include "output.hpp"

#include <fcntl.h>     // open, fcntl
#include <sys/file.h>  // flock
#include <sys/stat.h>  // stat, fchmod
#include <unistd.h>    // write, close, unlink, access, getpid

#include <algorithm>     // std::min
#include <cerrno>        // errno
#include <climits>       // INT_MAX
#include <csignal>       // std::signal, kill
#include <cstdio>        // std::rename
#include <cstring>       // std::strerror
#include <system_error>  // std::error_code
#include <utility>       // std::exchange
#include <vector>        // std::vector

#include "file_place.hpp"
#include "input_error.hpp"
#include "numbers.hpp"

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

namespace {

// "report.html" of "report.html.4711.part"; an empty name: it is no such file.
std::pair<std::string_view, pid_t> part_of(std::string_view name) {
  constexpr std::string_view ending = ".part";
  if (!name.ends_with(ending)) return {};
  name.remove_suffix(ending.size());
  const std::size_t dot = std::min(name.rfind('.'), name.size());
  const auto process = whole_number<pid_t>(name.substr(std::min(dot + 1, name.size())), 1, INT_MAX);
  return process ? std::pair{name.substr(0, dot), *process} : std::pair{std::string_view(), pid_t{0}};
}

// Who writes a file holds its lock. Other machines and containers have other processes of the same number.
void remove_unless_written(const std::filesystem::path& part, pid_t process) {
  if (process != ::getpid() && (::kill(process, 0) == 0 || errno != ESRCH)) return;
  const int file = ::open(part.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return;
  struct stat found = {};
  const bool is_file = ::fstat(file, &found) == 0 && S_ISREG(found.st_mode);
  if (is_file && ::flock(file, LOCK_EX | LOCK_NB) == 0) ::unlink(part.c_str());
  ::close(file);
}

std::vector<std::string>& kept() {
  static std::vector<std::string> sentences;
  return sentences;
}

}  // namespace

void remove_left_over(const std::filesystem::path& folder, const std::function<bool(std::string_view name)>& is_meant) {
  std::error_code unknown;
  for (std::filesystem::directory_iterator at(folder, unknown), end; !unknown && at != end; at.increment(unknown)) {
    const std::string name = at->path().filename().string();
    const auto [target, process] = part_of(name);
    if (!target.empty() && is_meant(target)) remove_unless_written(at->path(), process);
  }
}

output_file::output_file(const std::string& path)
    : path_(path), file_(open_for(path)), buffer_(file_, named(path)), stream_(&buffer_) {
  if (file_ < 0) stream_.rdbuf(std::cout.rdbuf());  // in order with what is printed
  stream_.exceptions(std::ios::badbit);
}

output_file::~output_file() {
  if (file_ < 0) return;
  ::close(file_);
  if (!written_.empty()) ::unlink(written_.c_str());
}

void output_file::finish() {
  stream_.flush();
  if (file_ < 0) return;
  const int closed = ::close(std::exchange(file_, -1));
  if (closed == 0 && (written_.empty() || written_ == target_)) return;
  if (closed == 0 && std::rename(written_.c_str(), target_.c_str()) == 0) return;
  const int error = errno;
  if (!written_.empty()) ::unlink(written_.c_str());
  refuse(error);
}

void output_file::refuse(int error) const { fail(named(path_), ": cannot be written: ", std::strerror(error)); }

int output_file::open_for(const std::string& path) {
  const file_place place = place_of(path);
  if (place.descriptor) return descriptor(*place.descriptor);
  struct stat there = {};
  const bool exists = ::stat(path.c_str(), &there) == 0;
  if (exists && !S_ISREG(there.st_mode)) return opened(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (exists && ::access(path.c_str(), W_OK) != 0) refuse(errno);
  target_ = place.path().string();  // a link stays one
  remove_left_over(place.folder, [&](std::string_view name) { return name == place.name; });
  written_ = target_ + "." + std::to_string(::getpid()) + ".part";
  const int made = ::open(written_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (made >= 0 && exists) static_cast<void>(::fchmod(made, there.st_mode & 07777));
  if (made >= 0) return static_cast<void>(::flock(made, LOCK_EX | LOCK_NB)), made;
  written_ = exists ? "" : target_;  // an unfinished file goes, unless it was there before
  return opened(::open(target_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
}

// One that the process was started with: what it opens itself is closed on exec, or read.
int output_file::descriptor(int number) {
  const int flags = ::fcntl(number, F_GETFD), mode = ::fcntl(number, F_GETFL);
  if (flags < 0 || (flags & FD_CLOEXEC) != 0 || (mode & O_ACCMODE) == O_RDONLY) refuse(EBADF);
  return number == STDOUT_FILENO ? -1 : opened(::fcntl(number, F_DUPFD_CLOEXEC, 0));
}

int output_file::opened(int file) const {
  if (file < 0) refuse(errno);
  return file;
}

void tell(const std::string& sentence) { kept().push_back(sentence); }

void tell_all() {
  for (const std::string& sentence : std::exchange(kept(), {})) std::cerr << on_one_line(sentence) << '\n';
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

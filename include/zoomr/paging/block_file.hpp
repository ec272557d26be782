// SPDX-License-Identifier: Apache-2.0
// L3. Blocks of one size in a file, by number: explicit reads and writes, never a mapping, so that memory in use stays
// what is counted.
//
// The tier under the memory of tiered_blocks, which writes a block before it first reads it. Reads and writes go
// through the system's page cache, so that nothing needs to be aligned, and `read_ahead` brings blocks there ahead.
// Beside the checksums no memory is held.
#pragma once

#include <zoomr/core/bytes.hpp>
#include <zoomr/core/error.hpp>

#include <fcntl.h>     // open, posix_fadvise, posix_fallocate
#include <sys/stat.h>  // stat
#include <unistd.h>    // pread, pwrite, close, unlink

#include <cerrno>        // errno
#include <string>        // std::string
#include <system_error>  // std::generic_category
#include <utility>       // std::exchange
#include <vector>        // std::vector

namespace zoomr::inline v0 {

class block_file;

/// Why a block was not moved: plain data, so that a thread that moves bytes needs no memory to report it.
struct block_fault {
  enum class cause : std::uint8_t {
    none,     ///< it was moved; or the reason was lost
    refused,  ///< the system has refused, see `number`
    ended,    ///< the file is too short
    changed,  ///< what was read is not what was written
  };
  const block_file* file = nullptr;
  std::int64_t block = 0;
  int number = 0;  // errno, of what was refused
  cause what = cause::none;
  bool writing = false;

  explicit operator bool() const { return what != cause::none; }
  /// The file, the block and the system's reason, in words; the file must still be there.
  std::string sentence() const;
};

/// A file of blocks, which has no name: what a cache has written is worth nothing without it, and goes with the
/// process, whatever ends that. So any number of caches and processes can be given the same path at once.
///
/// Where the file system makes files without a name (O_TMPFILE), there never is one. Elsewhere the file is made as
/// PATH.zoomr-tier and unlinked at once. A process that is killed between the two leaves that name in the folder, with
/// an empty file, which the next one that is given the path removes. Whoever finds the name there may remove it at any
/// time: a file is opened only by who has made it, and needs no name from then on.
///
/// One thread at a time. Checksums are kept in memory, 8 bytes for each block.
class block_file {
 public:
  block_file() = default;
  /// The whole file is given its room on the disk here, so that later writes do not fail for want of it.
  /// @param path  a folder in which the file is made, or a name in that folder, which only error messages use; what is
  ///              there is neither read nor changed
  /// @throws error(storage) if it cannot be made, the disk has no room for it, or `path` is a device, a pipe or a
  ///         socket: who names one does not mean the folder around it
  block_file(const std::string& path, byte_count block_bytes, std::int64_t blocks)
      : path_(path), block_bytes_(block_bytes), sums_(static_cast<std::size_t>(blocks)), file_(open_nameless(path)) {
    if (file_ < 0) fail(errno, "cannot be made");
    int status = EINTR;
    while (status == EINTR) status = ::posix_fallocate(file_, 0, static_cast<off_t>(block_bytes * blocks));
    if (status == 0) return;
    ::close(file_);
    fail(status, "cannot be given " + std::to_string(block_bytes * blocks) + " bytes");
  }
  block_file(block_file&& other) noexcept
      : path_(std::move(other.path_)),
        block_bytes_(other.block_bytes_),
        sums_(std::move(other.sums_)),
        file_(std::exchange(other.file_, -1)) {}
  block_file& operator=(block_file&&) = delete;
  ~block_file() {
    if (file_ >= 0) ::close(file_);
  }

  /// As it was given.
  const std::string& path() const { return path_; }

  /// Writes one block, and remembers its checksum.
  /// @param block  its number, from 0 on
  /// @param from   block_bytes bytes
  /// @return      why they could not all be written; the block is worth nothing then
  block_fault try_write(std::int64_t block, const void* from) {
    sums_[static_cast<std::size_t>(block)] = checksum(from, block_bytes_);
    block_fault fault = each_piece(block, [&](byte_count done, std::size_t left, off_t at) {
      return ::pwrite(file_, static_cast<const char*>(from) + done, left, at);
    });
    fault.writing = true;
    return fault;
  }
  /// The same; what `try_write` returns is thrown.
  /// @throws error(storage)  with the sentence
  void write(std::int64_t block, const void* from) {
    if (const block_fault fault = try_write(block, from)) detail::raise(errc::storage, fault.sentence());
  }
  /// Announces that a block will be read soon: the system brings it to its page cache, if it has room, while nothing
  /// waits. Any thread may call it while another one reads or writes.
  void read_ahead(std::int64_t block) const {
    static_cast<void>(::posix_fadvise(file_, static_cast<off_t>(block * block_bytes_), static_cast<off_t>(block_bytes_),
                                      POSIX_FADV_WILLNEED));
  }
  /// Reads one block that was written before.
  /// @param block  its number, from 0 on
  /// @param to     block_bytes bytes; contents are lost if it fails
  /// @return    why they could not all be read, or are not those that were written
  block_fault try_read(std::int64_t block, void* to) {
    block_fault fault = each_piece(block, [&](byte_count done, std::size_t left, off_t at) {
      return ::pread(file_, static_cast<char*>(to) + done, left, at);
    });
    const bool same = fault || checksum(to, block_bytes_) == sums_[static_cast<std::size_t>(block)];
    if (!same) fault.what = block_fault::cause::changed;
    return fault;
  }
  /// @throws error(storage)  with the sentence
  void read(std::int64_t block, void* to) {
    if (const block_fault fault = try_read(block, to)) detail::raise(errc::storage, fault.sentence());
  }

 private:
  // move(bytes done, bytes left, offset) returns how many it has moved, as pread does.
  template <class Move>
  block_fault each_piece(std::int64_t block, Move move) const {
    block_fault fault{.file = this, .block = block};
    for (byte_count done = 0; done < block_bytes_;) {
      const auto moved =
          move(done, static_cast<std::size_t>(block_bytes_ - done), static_cast<off_t>(block * block_bytes_ + done));
      if (moved < 0 && errno == EINTR) continue;
      if (moved <= 0) {
        fault.what = moved < 0 ? block_fault::cause::refused : block_fault::cause::ended;
        fault.number = moved < 0 ? errno : 0;
        break;
      }
      done += moved;
    }
    return fault;
  }

  // Makes the file and takes its name away. Interrupted calls are made again; a name that others make and unlink at the
  // same time is tried until it is ours.
  // @return  -1 and errno if there can be none.
  static int open_nameless(const std::string& path) {
    struct stat found;
    const bool is_there = ::stat(path.c_str(), &found) == 0;
    const bool is_folder = is_there && S_ISDIR(found.st_mode);
    if (is_there && !is_folder && !S_ISREG(found.st_mode))
      detail::raise(errc::storage, "the tier's file " + path + " cannot be made: it is neither a folder nor a file");
    const auto slash = path.rfind('/');
    const std::string folder = is_folder ? path : path.substr(0, slash == path.npos ? 0 : slash + 1);
#if defined(O_TMPFILE)
    const int nameless = open_patiently(folder.empty() ? "." : folder, O_TMPFILE);
    const bool unknown = errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL;  // to this file system
    if (nameless >= 0 || !unknown) return nameless;
#endif
    const std::string name = is_folder ? path + "/zoomr-tier" : path + ".zoomr-tier";
    for (int tries = 0; tries < 10000; ++tries) {  // if others are at it, one of all succeeds each time
      const int descriptor = open_patiently(name, O_CREAT | O_EXCL);
      if (descriptor < 0 && errno != EEXIST) return -1;
      const bool gone = ::unlink(name.c_str()) == 0 || errno == ENOENT;
      if (gone && descriptor < 0) continue;
      if (gone) return descriptor;
      const int code = errno;
      if (descriptor >= 0) ::close(descriptor);
      errno = code;
      return -1;
    }
    errno = EEXIST;
    return -1;
  }
  static int open_patiently(const std::string& name, int how) {
    int file = -1;
    do file = ::open(name.c_str(), O_RDWR | O_CLOEXEC | how, 0600);
    while (file < 0 && errno == EINTR);
    return file;
  }
  [[noreturn]] void fail(int number, const std::string& what) const {
    detail::raise(errc::storage,
                  "the tier's file " + path_ + " " + what + ": " + std::generic_category().message(number));
  }

  std::string path_;
  byte_count block_bytes_ = 0;
  std::vector<std::uint64_t> sums_;
  int file_ = -1;
};

inline std::string block_fault::sentence() const {
  if (what == cause::none) return "a transfer has failed";
  return "block " + std::to_string(block) + " of the tier's file " + file->path() +
         (what == cause::changed
              ? " is not what was written there"
              : std::string(" cannot be ") + (writing ? "written" : "read") + ": " +
                    (what == cause::ended ? "the file ends before it" : std::generic_category().message(number)));
}

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L3. Blocks of one size in a file, by number: explicit reads and writes, never a mapping, so that memory stays what
// the accounts say.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/types.hpp>
#include <zoomr/tier/read_ring.hpp>

#include <fcntl.h>   // open
#include <unistd.h>  // pread, pwrite, ftruncate, close, unlink

#include <cerrno>   // errno
#include <cstring>  // std::memcpy, std::strerror
#include <memory>   // std::unique_ptr
#include <string>   // std::string
#include <vector>   // std::vector

namespace zoomr {
inline namespace v0 {

/// A number that another content hardly has: for what disks and memory do to bytes, not for what people do.
/// @cost  a multiplication for each 8 bytes
inline std::uint64_t checksum(const void* data, byte_count bytes) {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;
  std::uint64_t sum = odd ^ static_cast<std::uint64_t>(bytes);
  const auto* at = static_cast<const unsigned char*>(data);
  for (; bytes > 0; bytes -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, bytes < 8 ? static_cast<std::size_t>(bytes) : 8);
    sum = (sum ^ word) * odd;
    sum ^= sum >> 29;
  }
  return sum;
}

/// A file of blocks. It is unlinked as soon as it is open: what a cache has written is worth nothing without it, and
/// goes with the process, whatever ends that.
///
/// One thread at a time. Checksums are kept in memory, 8 bytes for each block.
class block_file {
 public:
  block_file() = default;
  /// @param path   of a file that must not exist yet
  /// @param early  reads that may be under way before they are asked for, if there is io_uring
  /// @throws error(storage) if it cannot be made, or the disk has no room for it
  block_file(const std::string& path, byte_count block_bytes, std::int64_t blocks, index early = read_ring::places)
      : block_bytes_(block_bytes), sums_(static_cast<std::size_t>(blocks)), ring_(std::make_unique<read_ring>(early)) {
    do file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    while (file_ < 0 && errno == EINTR);
    if (file_ < 0) fail("cannot be made", path);
    ::unlink(path.c_str());
    int status = EINTR;
    while (status == EINTR) status = ::posix_fallocate(file_, 0, static_cast<off_t>(block_bytes * blocks));
    if (status == 0) return;
    ::close(file_);
    errno = status;
    fail("cannot be given " + std::to_string(block_bytes * blocks) + " bytes", path);
  }
  block_file(block_file&& other) noexcept
      : file_(other.file_),
        block_bytes_(other.block_bytes_),
        sums_(std::move(other.sums_)),
        ring_(std::move(other.ring_)) {
    other.file_ = -1;
  }
  block_file& operator=(block_file&&) = delete;
  ~block_file() {
    ring_.reset();  // waits for reads that are under way
    if (file_ >= 0) ::close(file_);
  }

  /// @param from  block_bytes bytes
  /// @throws error(storage) if they cannot all be written; the block is worth nothing then
  void write(std::int64_t block, const void* from) {
    sums_[static_cast<std::size_t>(block)] = checksum(from, block_bytes_);
    each_piece(block, 0, [&](byte_count done, std::size_t left, off_t at) {
      return ::pwrite(file_, static_cast<const char*>(from) + done, left, at);
    });
  }
  /// Whether reads can be begun before they are asked for.
  bool begins_reads() const { return ring_->works(); }
  /// Begins a read that must be asked for later.
  /// @param to  as it will be asked for; nobody else touches it until then
  /// @return    false if nothing was begun
  bool begin_read(std::int64_t block, void* to) { return ring_->begin(file_, to, block_bytes_, block * block_bytes_); }
  /// Whether a read that was begun did not come at once.
  bool comes_late(const void* to) { return ring_->comes_late(to); }
  /// @param to  block_bytes bytes
  /// @throws error(storage) if they cannot all be read, or are not those that were written
  void read(std::int64_t block, void* to) {
    const byte_count came = ring_->finish(to);  // what is missing, or has failed, is read now
    each_piece(block, came, [&](byte_count done, std::size_t left, off_t at) {
      return ::pread(file_, static_cast<char*>(to) + done, left, at);
    });
    if (checksum(to, block_bytes_) != sums_[static_cast<std::size_t>(block)]) {
      throw error(errc::storage, "block " + std::to_string(block) + " of a tier's file is not what was written there");
    }
  }

 private:
  // move(bytes done, bytes left, offset) says how many it has moved, as pread does.
  template <class Move>
  void each_piece(std::int64_t block, byte_count done, Move move) {
    while (done < block_bytes_) {
      const auto moved =
          move(done, static_cast<std::size_t>(block_bytes_ - done), static_cast<off_t>(block * block_bytes_ + done));
      if (moved < 0 && errno == EINTR) continue;
      if (moved <= 0) {
        throw error(errc::storage, "block " + std::to_string(block) + " of a tier's file cannot be moved: " +
                                       (moved < 0 ? std::strerror(errno) : "the file ends before it"));
      }
      done += moved;
    }
  }
  [[noreturn]] static void fail(const std::string& what, const std::string& path) {
    throw error(errc::storage, "the tier's file " + path + " " + what + ": " + std::strerror(errno));
  }

  int file_ = -1;
  byte_count block_bytes_ = 0;
  std::vector<std::uint64_t> sums_;
  std::unique_ptr<read_ring> ring_;
};

}  // namespace v0
}  // namespace zoomr

// SPDX-License-Identifier: Apache-2.0
// A tier's file whose blocks say which they are, and the slots that they come to.
#pragma once

#include <zoomr/paging/tiers/transfers.hpp>

#include <linux/magic.h>  // TMPFS_MAGIC
#include <sys/vfs.h>      // fstatfs

#include <cstring>     // std::memcpy
#include <filesystem>  // std::filesystem::temp_directory_path

#include "check.hpp"
#include "rows.hpp"

namespace zoomr_bench {

/// The system can be told to forget it.
class tier_file {
 public:
  static constexpr std::int64_t slots = toy ? 3 : 64;  // in which blocks come

  explicit tier_file(zoomr::byte_count block_bytes)
      : bytes_(block_bytes),
        blocks_(std::max<std::int64_t>((toy ? 1 << 16 : 256 << 20) / block_bytes, 7)),
        file_(path(), block_bytes, blocks_),
        descriptor_(descriptor_of(path())),
        memory_(static_cast<std::size_t>(slots * block_bytes)) {
    for (std::int64_t b = 0; b < blocks_; ++b) {
      for (std::int64_t w = 0; w < words(); ++w) put(memory_.data(), w, word(b, w));
      file_.write(b, memory_.data());
    }
  }

  zoomr::block_file& file() { return file_; }
  char* slot(std::int64_t number) { return memory_.data() + number * bytes_; }
  /// At random.
  std::int64_t next_block() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<std::int64_t>(state_ >> 8) % blocks_;
  }

  void forget() {
    if (toy) return;
    struct statfs system;
    if (::fstatfs(descriptor_, &system) != 0 || system.f_type == TMPFS_MAGIC) {
      throw skipped("the folder for temporary files is in memory");
    }
    if (::fdatasync(descriptor_) != 0 || ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED) != 0) {
      throw skipped("the system does not forget the file");
    }
  }

  /// Compares a slot with what was written to a block.
  void expect_came(comparison& compared, std::int64_t block, std::int64_t number) {
    for (std::int64_t w = 0; w < words(); ++w) {
      std::uint32_t came = 0;
      std::memcpy(&came, slot(number) + w * 4, 4);
      compared.same(came, word(block, w));
    }
  }

 private:
  std::int64_t words() const { return bytes_ / 4; }
  static std::uint32_t word(std::int64_t block, std::int64_t w) {
    return static_cast<std::uint32_t>(block) * 0x9e3779b9u ^ static_cast<std::uint32_t>(w) * 0x85ebca6bu;
  }
  static void put(char* to, std::int64_t w, std::uint32_t what) { std::memcpy(to + w * 4, &what, 4); }

  static std::string path() {
    return (std::filesystem::temp_directory_path() / ("zoomr_bench_" + std::to_string(::getpid()))).string();
  }
  // Of a file that is open, though unlinked.
  static int descriptor_of(const std::string& unlinked) {
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(each, gone).string().starts_with(unlinked))
        return std::stoi(each.path().filename());
    }
    return -1;
  }

  zoomr::byte_count bytes_;
  std::int64_t blocks_;
  zoomr::block_file file_;
  int descriptor_;
  std::vector<char> memory_;  // [slots, block_bytes]
  std::uint32_t state_ = 1;
};

}  // namespace zoomr_bench

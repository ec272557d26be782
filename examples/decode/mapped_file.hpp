// SPDX-License-Identifier: Apache-2.0
// A file in memory as it lies on the disk: pages come when they are first read, leave when memory is short, and are
// shared with every process that maps the same file.
//
// Whoever changes the file meanwhile changes what is read, and whoever makes it shorter ends the program by SIGBUS at
// the first page that is gone. A file that is replaced by another of its name stays what it was.
#pragma once

#include <cstddef>     // std::byte
#include <cstdint>     // std::uint64_t
#include <filesystem>  // std::filesystem::path

namespace decode {

class mapped_file {
 public:
  /// @throws input_error  no regular file that can be read
  explicit mapped_file(const std::filesystem::path& path);
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;
  ~mapped_file();

  /// Bytes that it had when it was opened.
  std::uint64_t size() const { return size_; }
  /// nullptr where the system maps no files, or not this one: then they are copied.
  const std::byte* data() const { return data_; }

 private:
  std::uint64_t size_ = 0;
  const std::byte* data_ = nullptr;
};

}  // namespace decode

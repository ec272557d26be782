// SPDX-License-Identifier: Apache-2.0
#include "mapped_file.hpp"

#include <fcntl.h>     // open
#include <sys/mman.h>  // mmap, munmap
#include <sys/stat.h>  // fstat
#include <unistd.h>    // close

#include <cerrno>   // errno
#include <cstring>  // std::strerror
#include <limits>   // std::numeric_limits

#include "input_error.hpp"
#include "json_file.hpp"

namespace decode {

mapped_file::mapped_file(const std::filesystem::path& path) {
  file_bytes(path);  // that it is a regular file, which open() would not say
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail(path.string(), ": the file cannot be read: ", std::strerror(errno));
  struct stat found = {};
  const bool known = ::fstat(descriptor, &found) == 0;
  const int reason = errno;
  if (known) {
    size_ = static_cast<std::uint64_t>(found.st_size);
    if (size_ > 0 && size_ <= std::numeric_limits<std::size_t>::max()) {
      void* const mapped = ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_PRIVATE, descriptor, 0);
      if (mapped != MAP_FAILED) data_ = static_cast<const std::byte*>(mapped);
    }
  }
  ::close(descriptor);
  if (!known) fail(path.string(), ": its size cannot be read: ", std::strerror(reason));
}

mapped_file::~mapped_file() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_));
}

}  // namespace decode

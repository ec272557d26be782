// SPDX-License-Identifier: Apache-2.0
// A library to load before the C library (LD_PRELOAD): writes to files that have no name, as a tier's file is, fail
// with EIO after the first ZOOMR_TEST_WRITES.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace {

bool fails(int file) {
  static const char* const given = std::getenv("ZOOMR_TEST_WRITES");
  static std::atomic<int> left = given == nullptr ? 0 : std::atoi(given);
  struct stat of = {};
  return given != nullptr && fstat(file, &of) == 0 && S_ISREG(of.st_mode) && of.st_nlink == 0 && left-- <= 0;
}

ssize_t write_at(const char* name, int file, const void* from, size_t bytes, off_t at) {
  if (fails(file)) {
    errno = EIO;
    return -1;
  }
  using call = ssize_t (*)(int, const void*, size_t, off_t);
  return reinterpret_cast<call>(dlsym(RTLD_NEXT, name))(file, from, bytes, at);
}

}  // namespace

extern "C" ssize_t pwrite(int file, const void* from, size_t bytes, off_t at) {
  return write_at("pwrite", file, from, bytes, at);
}
extern "C" ssize_t pwrite64(int file, const void* from, size_t bytes, off_t at) {
  return write_at("pwrite64", file, from, bytes, at);
}

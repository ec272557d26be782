// SPDX-License-Identifier: Apache-2.0
// Blocks of a tier's file through the engine that moves them, with reads begun early (io_uring) and without.
#include <zoomr/tier/transfers.hpp>

#include <rows.hpp>

#include <linux/magic.h>  // TMPFS_MAGIC
#include <sys/vfs.h>      // fstatfs

#include <filesystem>  // std::filesystem::temp_directory_path

namespace zoomr_bench {

namespace {

using namespace zoomr;
using zoomr::index;

constexpr std::int64_t file_bytes = toy ? 1 << 16 : 256 << 20;
constexpr std::int64_t asked = toy ? 5 : 256;  // blocks of an iteration
constexpr std::int64_t slots = toy ? 3 : 64;   // in which they come, and from which they are copied

/// A file of blocks; the system can be told to forget them.
struct blocks_on_disk {
  byte_count block_bytes;
  std::int64_t blocks = std::max<std::int64_t>(file_bytes / block_bytes, 7);
  block_file file;
  int descriptor = descriptor_of(path());
  std::vector<char> host, device;  // [slots, block_bytes]
  std::uint32_t state = 1;

  blocks_on_disk(byte_count bytes, index early)
      : block_bytes(bytes),
        file(path(), bytes, blocks, early),
        host(static_cast<std::size_t>(slots * bytes)),
        device(host.size()) {
    for (std::int64_t b = 0; b < blocks; ++b) file.write(b, host.data() + b % slots * block_bytes);
  }

  void forget() {
    if (toy) return;
    struct statfs system;
    if (::fstatfs(descriptor, &system) != 0 || system.f_type == TMPFS_MAGIC) {
      throw skipped("the folder for temporary files is in memory");
    }
    if (::fdatasync(descriptor) != 0 || ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED) != 0) {
      throw skipped("the system does not forget the file");
    }
  }
  std::int64_t next_block() {
    state = state * 1664525u + 1013904223u;
    return static_cast<std::int64_t>(state >> 8) % blocks;
  }

 private:
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
};

/// As a tiered pool moves pages: from the file to a slot of the host's tier, and from there to the device's.
/// @param queued  blocks that are started before the first is waited for
void add_file(byte_count bytes, bool cold, std::int64_t queued, index early) {
  const std::string name = "host/file/bytes:" + std::to_string(bytes) + (cold ? "/cold" : "/warm") +
                           "/queued:" + std::to_string(queued) + "/early:" + std::to_string(early);
  add_row(name, 3, [=](int iterations) {
    const auto on_disk = kept<blocks_on_disk>(name, [&] { return std::make_unique<blocks_on_disk>(bytes, early); });
    if (early > 0 && !toy && !on_disk->file.begins_reads())
      throw skipped("built without liburing, or no io_uring here");
    transfers_beside engine;
    result of;
    for (int i = 0; i < iterations; ++i) {
      if (cold) on_disk->forget();
      const double from = now();
      std::int64_t waited = 0;
      std::vector<ticket> copies(static_cast<std::size_t>(asked));
      for (std::int64_t block = 0; block < asked; ++block) {
        if (block - waited == queued) engine.wait(copies[static_cast<std::size_t>(waited++)]);
        char* const to = on_disk->host.data() + block % slots * bytes;
        const ticket read =
            engine.start({.to = to, .bytes = bytes, .file = &on_disk->file, .block = on_disk->next_block()});
        copies[static_cast<std::size_t>(block)] = engine.start(
            {.from = to, .to = on_disk->device.data() + block % slots * bytes, .bytes = bytes, .after = read});
      }
      for (; waited < asked; ++waited) {
        if (!engine.wait(copies[static_cast<std::size_t>(waited)])) throw std::runtime_error("a read has failed");
      }
      of.seconds.push_back(now() - from);
    }
    of.bytes = static_cast<double>(asked * bytes);
    of.figures = {{"us_per_block", quantile(of.seconds, 0.5) * 1e6 / static_cast<double>(asked)}};
    return of;
  });
}

}  // namespace

void add_file_rows() {
  for (const byte_count bytes : toy ? std::vector<byte_count>{512} : std::vector<byte_count>{8192, 32768, 131072}) {
    for (const bool cold : {true, false}) {
      for (const std::int64_t queued : {1, 8, 32}) {
        for (const index early : {0, 32}) add_file(bytes, cold, queued, early);
      }
    }
  }
}

}  // namespace zoomr_bench

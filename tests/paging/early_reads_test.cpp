// SPDX-License-Identifier: Apache-2.0
// Which reads are begun before their turn, and that nobody can tell.
#include <doctest/doctest.h>
#include <paging/queues.hpp>

#include <filesystem>  // std::filesystem::directory_iterator
#include <thread>      // std::thread

namespace zoomr {

namespace {

/// Has the system write what it holds of a file and forget it, where it lies on a disk.
void forget(const std::string& unlinked) {
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (!std::filesystem::read_symlink(each, gone).string().starts_with(unlinked)) continue;
    const int file = std::stoi(each.path().filename());
    ::fdatasync(file);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("each transfer finds what those before it have left", Engine, sync_transfers, async_transfers,
                   unit::scripted_transfers) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) REQUIRE(unit::play_queue<Engine>(seed, 400) == 0);
}

TEST_CASE("what the system has forgotten comes from the disk, whoever has begun to read it") {
  constexpr std::int64_t count = 64, numbers = 1024;
  zoomr_test::temporary_folder folder;
  const std::string path = folder.path();
  block_file file(path, numbers * 8, count);
  std::vector<std::int64_t> host(count * numbers), device(count * numbers);
  const auto at = [&](std::vector<std::int64_t>& of, std::int64_t b) { return of.data() + b * numbers; };
  for (std::int64_t b = 0; b < count; ++b) {
    for (std::int64_t i = 0; i < numbers; ++i) at(host, b)[i] = b * numbers + i;
    file.write(b, at(host, b));
  }
  const std::vector<std::int64_t> written = host;
  for (int tries = 0; tries < 5; ++tries) {
    std::fill(host.begin(), host.end(), -1), std::fill(device.begin(), device.end(), -1);
    forget(path);
    {
      async_transfers engine;
      for (std::int64_t b = 0; b < count; ++b) {
        const ticket read = engine.start({.to = at(host, b), .bytes = numbers * 8, .file = &file, .block = b});
        engine.start({.from = at(host, b), .to = at(device, b), .bytes = numbers * 8, .after = read});
        if (b % 16 == tries) CHECK(engine.wait(read));
      }
    }
    CHECK(device == written);
    std::fill(host.begin(), host.end(), -1);
    forget(path);
    std::thread([&] {  // it ends before they have come
      for (std::int64_t b = 0; b < count; ++b) file.begin_read(b, at(host, b));
    })
        .join();
    for (std::int64_t b = 0; b < count; ++b) file.read(b, at(host, b));
    CHECK(host == written);
  }
}

}  // namespace zoomr

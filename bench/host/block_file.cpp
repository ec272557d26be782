// SPDX-License-Identifier: Apache-2.0
// Blocks of a tier's file through the engine that moves them, as a tiered pool moves pages: from the file to a slot of
// memory.
//   host/file/bytes:B/cold/queued:Q/ahead:A   256 random blocks of B bytes of a file of 256 MiB
//     cold, warm   the system was told to forget the file before each iteration; it holds it
//     queued       blocks that are started, at most, before the first is waited for
//     ahead        1: the system is told of each block when it is started, as by `prefetch`; 0: pread alone
// us_per_block: wall-clock. Ceiling: the disk's (cold), or a copy in memory (warm: host/ceiling/read_512MiB). Bytes are
// counted once.
// Checked: every block of one iteration against what was written there, exactly, when it has come.
#include "../support/kernels.hpp"
#include "../support/tier_file.hpp"

namespace zoomr_bench {

namespace {

constexpr std::int64_t asked = toy ? 5 : 256;  // blocks of an iteration

/// Moves `asked` blocks.
/// @param came  came(block, slot): called when each has come, before its slot is used again
template <class Came>
void move_blocks(tier_file& from, zoomr::async_transfers& engine, std::int64_t queued, bool ahead, Came came) {
  std::vector<zoomr::ticket> reads(static_cast<std::size_t>(asked));
  std::vector<std::int64_t> blocks(reads.size());
  const auto wait_for = [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    if (!engine.wait(reads[at])) throw std::runtime_error(engine.why(reads[at]).sentence());
    came(blocks[at], i % tier_file::slots);
  };
  std::int64_t waited = 0;
  for (std::int64_t i = 0; i < asked; ++i) {
    if (i - waited == queued) wait_for(waited++);
    const std::int64_t slot = i % tier_file::slots;
    const auto at = static_cast<std::size_t>(i);
    blocks[at] = from.next_block();
    if (ahead) from.file().read_ahead(blocks[at]);
    reads[at] = engine.start({&from.file(), blocks[at], from.slot(slot)});
  }
  while (waited < asked) wait_for(waited++);
}

void add_file(zoomr::byte_count bytes, bool cold, std::int64_t queued, bool ahead) {
  const std::string name = "host/file/bytes:" + std::to_string(bytes) + (cold ? "/cold" : "/warm") +
                           "/queued:" + std::to_string(queued) + "/ahead:" + (ahead ? "1" : "0");
  add_row(name, 3, [=](int iterations) {
    const auto blocks = kept<tier_file>(name, [&] { return std::make_unique<tier_file>(bytes); });
    zoomr::async_transfers engine;
    check_once(name, [&] {
      if (cold) blocks->forget();
      comparison compared("blocks");
      move_blocks(*blocks, engine, std::min(queued, tier_file::slots), ahead,
                  [&](std::int64_t block, std::int64_t slot) { blocks->expect_came(compared, block, slot); });
    });
    result of;
    for (int i = 0; i < iterations; ++i) {
      if (cold) blocks->forget();
      const double from = now();
      move_blocks(*blocks, engine, queued, ahead, [](std::int64_t, std::int64_t) {});
      of.seconds.push_back(now() - from);
    }
    of.bytes = static_cast<double>(asked * bytes);
    of.figures = {{"us_per_block", quantile(of.seconds, 0.5) * 1e6 / static_cast<double>(asked)}};
    return of;
  });
}

}  // namespace

void host::add_block_file() {
  using zoomr::byte_count;
  for (const byte_count bytes : toy ? std::vector<byte_count>{512} : std::vector<byte_count>{8192, 32768, 131072}) {
    for (const bool cold : {true, false}) {
      for (const std::int64_t queued : {1, 8, 32}) {
        for (const bool ahead : {false, true}) add_file(bytes, cold, queued, ahead);
      }
    }
  }
}

}  // namespace zoomr_bench

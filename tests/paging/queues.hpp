// SPDX-License-Identifier: Apache-2.0
// Random queues of transfers, beside what they must do one after the other in plain memory.
#pragma once

#include <doctest/doctest.h>
#include <core/random.hpp>
#include <paging/engines.hpp>
#include <support/temporary_folder.hpp>

#include <array>   // std::array
#include <memory>  // std::unique_ptr

namespace unit {

using zoomr::block_file;
using zoomr::index_t;

inline constexpr index_t block = 24;       // bytes
inline constexpr index_t blocks = 5;       // of each file
inline constexpr index_t memory = 40 * 8;  // bytes, in which ranges meet in any way

/// Bytes, or what nobody knows since a transfer has failed.
using byte = int;
inline constexpr byte unknown = -1;

/// What a queue does, one transfer after the other.
struct plain {
  std::array<byte, memory> bytes;
  std::array<std::array<byte, block>, 2 * blocks> files;
  std::array<bool, 2 * blocks> written = {};
  std::vector<bool> failed = {false};  // by ticket
};

/// A queue that is made up while it is made.
template <class Engine>
class random_queue {
 public:
  explicit random_queue(std::uint64_t seed) : random_(seed) {
    for (std::size_t f = 0; f < 2; ++f) {
      files_[f] = std::make_unique<block_file>(folder_.path(), block, blocks, random_.chance(0.8) ? 32 : 3);
    }
    for (byte& each : model_.bytes) each = random_.below(256);
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<unsigned char>(model_.bytes[i]);
    // Few places are used again soon, or many.
    grain_ = std::array{1, 8, 24}[size(random_.below(3))];
  }

  void start() {
    transfer one{.bytes = block};
    const int what = random_.below(10);
    const index_t from = place(), to = place();
    const index_t at = random_.below(2 * blocks);
    if (what < 2 || (what >= 6 && std::abs(from - to) < block)) {
      one.from = &bytes_[size(from)];
    } else if (what < 6) {
      one.to = &bytes_[size(to)];
    } else {
      one.from = &bytes_[size(from)], one.to = &bytes_[size(to)];
    }
    if (one.from == nullptr || one.to == nullptr) {
      one.file = files_[size(at / blocks)].get();
      one.block = at % blocks;
    }
    const auto last = static_cast<index_t>(queued_.size());
    if (last > 0 && random_.chance(0.2)) one.after = static_cast<ticket>(random_.between(std::max(1, last - 20), last));
    queued_.push_back({one, from, to, at});
    REQUIRE(engine_.start(one) == queued_.size());
  }

  /// Waits for a transfer that was started, for all if `of` is the last.
  void wait(ticket of) {
    const bool good = engine_.wait(of);
    REQUIRE(engine_.done(of));
    while (model_.failed.size() <= of) follow();
    REQUIRE(good == !model_.failed[of]);
  }
  void wait_for_some() {
    if (!queued_.empty()) wait(static_cast<ticket>(random_.between(1, static_cast<index_t>(queued_.size()))));
  }

  /// Everything as the model has it.
  void check() {
    if (!queued_.empty()) wait(queued_.size());
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      CAPTURE(i);
      if (model_.bytes[i] != unknown) REQUIRE(static_cast<byte>(bytes_[i]) == model_.bytes[i]);
    }
    for (std::size_t b = 0; b < 2 * blocks; ++b) {
      CAPTURE(b);
      unsigned char got[block];
      if (!model_.written[b]) continue;
      files_[b / blocks]->read(static_cast<std::int64_t>(b % blocks), got);
      for (std::size_t i = 0; i < block; ++i) {
        if (model_.files[b][i] != unknown) REQUIRE(static_cast<byte>(got[i]) == model_.files[b][i]);
      }
    }
  }

  index_t spoiled = 0;  // reads that failed, though what they were after had been written

 private:
  struct queued {
    transfer one;
    index_t from, to, at;
  };

  index_t place() { return random_.below((memory - block) / grain_ + 1) * grain_; }

  // Makes the next one in the model.
  void follow() {
    const ticket of = model_.failed.size();
    const auto& [one, from, to, at] = queued_[of - 1];
    const bool failed = !engine_.wait(of);
    model_.failed.push_back(failed);
    bool expected = model_.failed[one.after];
    if (one.from == nullptr && !expected) {
      expected = !model_.written[size(at)];
      if (failed && !expected) {
        ++spoiled;
        expected = true;
      }
    }
    CAPTURE(of);
    REQUIRE(failed == expected);
    if (model_.failed[one.after]) return;
    for (index_t i = 0; i < block; ++i) {
      byte& target = one.to == nullptr ? model_.files[size(at)][size(i)] : model_.bytes[size(to + i)];
      const byte what = one.from == nullptr ? model_.files[size(at)][size(i)] : model_.bytes[size(from + i)];
      target = failed ? unknown : what;
    }
    if (one.to == nullptr) model_.written[size(at)] = true;
  }

  random random_;
  zoomr_test::temporary_folder folder_;
  std::unique_ptr<block_file> files_[2];
  std::vector<unsigned char> bytes_ = std::vector<unsigned char>(memory);
  plain model_;
  std::vector<queued> queued_;
  index_t grain_ = 1;
  Engine engine_;  // last: it ends before what it works on
};

/// @return  reads that failed, though what they were after had been written
template <class Engine>
index_t play_queue(std::uint64_t seed, index_t transfers) {
  CAPTURE(seed);
  random schedule(seed + 1000);
  script() = {.made_now = [&] { return schedule.below(6) == 0 ? schedule.below(9) : 0; }};
  random_queue<Engine> made(seed);
  const double waits = schedule.chance(0.5) ? 0.01 : 0.1;
  for (index_t i = 0; i < transfers; ++i) {
    made.start();
    if (schedule.chance(waits)) made.wait_for_some();
  }
  made.check();
  script() = {};
  return made.spoiled;
}

}  // namespace unit

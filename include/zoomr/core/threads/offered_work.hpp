// SPDX-License-Identifier: Apache-2.0
// L1. Pieces of work that one thread offers and any thread takes, one by one. Whoever comes late finds fewer of them,
// or none: nobody is waited for who has taken nothing.
#pragma once

#include <zoomr/core/executor.hpp>
#include <zoomr/core/threads/waiting.hpp>

#include <atomic>  // std::atomic

namespace zoomr::inline v0::detail {

/// One offer after the other, by one thread at a time.
class offered_work {
 public:
  static constexpr index_t most_pieces = 0xffff;  // of an offer

  /// Offers task(first) ... task(first + pieces - 1), does what no other thread takes, and returns when all are done.
  /// @pre  0 <= pieces <= most_pieces
  void share(index_t first, index_t pieces, const task_ref& task, patience before_sleep = {}) {
    task_ = &task;
    first_ = first;
    left_.store(pieces, std::memory_order_relaxed);
    const std::uint64_t before = offer_.load(std::memory_order_relaxed);
    offer_.store(((before >> 32) + 1) << 32 | static_cast<std::uint64_t>(pieces), std::memory_order_release);
    signal();
    while (work()) {
    }
    for (index_t left = left_.load(std::memory_order_acquire); left > 0;) left = awaited(left_, left, before_sleep);
  }

  /// Takes a piece and does it. While a piece is taken and not done, what was offered stays.
  /// @return  false if there is none
  bool work() {
    std::uint64_t offer = offer_.load(std::memory_order_acquire);
    std::uint64_t piece;
    do {
      piece = offer >> 16 & 0xffff;
      if (piece == (offer & 0xffff)) return false;
    } while (!offer_.compare_exchange_weak(offer, offer + (1 << 16), std::memory_order_acq_rel));
    (*task_)(first_ + static_cast<index_t>(piece));
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_all();
    return true;
  }

  /// Grows whenever there is something new; what a thread waits for that finds no work.
  std::uint32_t signals() const { return signals_.load(std::memory_order_acquire); }
  /// Waits until it is something else than `seen`, or less long.
  std::uint32_t await_signal(std::uint32_t seen, patience before_sleep = {}) const {
    return awaited(signals_, seen, before_sleep);
  }
  void signal() {
    signals_.fetch_add(1, std::memory_order_release);
    signals_.notify_all();
  }

 private:
  const task_ref* task_ = nullptr;                     // of what is offered
  index_t first_ = 0;                                  // the number of its first piece
  alignas(64) std::atomic<std::uint64_t> offer_{0};    // 32 bits: which offer; 16: pieces taken; 16: pieces
  alignas(64) std::atomic<index_t> left_{0};           // pieces that are not done
  alignas(64) std::atomic<std::uint32_t> signals_{0};  // grows whenever there is something new
};

}  // namespace zoomr::inline v0::detail

// SPDX-License-Identifier: Apache-2.0
// L1. Threads to lend to caches, for programs that have none: `limits.threads = pool;`. zoomr.hpp does not include it.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/executor.hpp>
#include <zoomr/core/threads/waiting.hpp>

#include <algorithm>     // std::min
#include <atomic>        // std::atomic
#include <cstddef>       // std::size_t
#include <mutex>         // std::mutex, std::lock_guard
#include <string>        // std::string
#include <system_error>  // std::system_error
#include <thread>        // std::thread
#include <vector>        // std::vector

namespace zoomr::inline v0 {

/// Some threads that wait for work, and the caller's, which works too. Several caches may share it: one call at a time
/// works, others wait.
///
/// A thread that finds nothing to do looks for work some 20 microseconds long, since a token's layers follow each other
/// closely; then it sleeps.
class thread_pool {
 public:
  /// @param threads  that work, the caller's among them; at most as many as the machine has cores pays
  /// @throws error(capacity) if the system refuses one
  explicit thread_pool(index_t threads) {
    ZOOMR_EXPECTS(threads >= 1 && threads <= executor::most_threads, "thread_pool: wanted 1 to 1024 threads");
    ZOOMR_TRY {
      started_.reserve(static_cast<std::size_t>(threads - 1));
      for (index_t i = 1; i < threads; ++i) started_.emplace_back([this] { serve(); });
    }
    ZOOMR_CATCH(const std::system_error& cause) {
      stop();
      detail::raise(errc::capacity, std::string("a thread of the pool cannot be started: ") + cause.what());
    }
    ZOOMR_CATCH_ALL {
      stop();
      detail::rethrow();
    }
  }
  thread_pool(const thread_pool&) = delete;
  thread_pool& operator=(const thread_pool&) = delete;
  ~thread_pool() { stop(); }

  index_t threads() const { return static_cast<index_t>(started_.size()) + 1; }

  /// Calls task(i) for each i of 0 ... pieces - 1, and returns when all are done. It must not be called by a task.
  /// @cost  no allocation; a thread that sleeps is woken, but never waited for: whoever comes late finds less to do
  void operator()(index_t pieces, const task_ref& task) {
    const std::lock_guard<std::mutex> alone(one_at_a_time_);
    if (pieces == 1) return task(0);
    for (first_ = 0; first_ < pieces; first_ += most_pieces) {
      task_ = &task;
      offer((std::min)(pieces - first_, most_pieces));
      while (work()) {
      }
      for (index_t left = left_.load(std::memory_order_acquire); left > 0;) left = detail::awaited(left_, left);
    }
  }

 private:
  static constexpr index_t most_pieces = 0xffff;  // of an offer

  void offer(index_t pieces) {
    left_.store(pieces, std::memory_order_relaxed);
    const std::uint64_t before = offer_.load(std::memory_order_relaxed);
    offer_.store(((before >> 32) + 1) << 32 | static_cast<std::uint64_t>(pieces), std::memory_order_release);
    signals_.fetch_add(1, std::memory_order_release);
    signals_.notify_all();
  }

  // Takes a piece and does it. While a piece is taken and not done, what was offered stays.
  // @return  false if there is none
  bool work() {
    std::uint64_t offered = offer_.load(std::memory_order_acquire);
    std::uint64_t piece;
    do {
      piece = offered >> 16 & 0xffff;
      if (piece == (offered & 0xffff)) return false;
    } while (!offer_.compare_exchange_weak(offered, offered + (1 << 16), std::memory_order_acq_rel));
    (*task_)(first_ + static_cast<index_t>(piece));
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_all();
    return true;
  }

  void serve() {
    for (std::uint32_t seen = 0; !stopped_.load(std::memory_order_acquire);) {
      while (work()) {
      }
      seen = detail::awaited(signals_, seen);
    }
  }

  void stop() {
    stopped_.store(true, std::memory_order_release);
    signals_.fetch_add(1, std::memory_order_release);
    signals_.notify_all();
    for (std::thread& thread : started_) thread.join();
    started_.clear();
  }

  std::mutex one_at_a_time_;
  std::vector<std::thread> started_;
  const task_ref* task_ = nullptr;  // of what is offered
  index_t first_ = 0;               // the first piece of that
  std::atomic<bool> stopped_{false};
  alignas(64) std::atomic<std::uint64_t> offer_{0};    // 32 bits: which offer; 16: pieces taken; 16: pieces
  alignas(64) std::atomic<index_t> left_{0};           // pieces that are not done
  alignas(64) std::atomic<std::uint32_t> signals_{0};  // grows whenever there is something new
};

}  // namespace zoomr::inline v0

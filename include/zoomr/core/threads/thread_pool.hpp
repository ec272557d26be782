// SPDX-License-Identifier: Apache-2.0
// L1. Threads to lend to caches, for programs that have none: `limits.threads = pool;`. zoomr.hpp does not include it.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/executor.hpp>
#include <zoomr/core/threads/waiting.hpp>

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
  void operator()(index_t pieces, const task_ref& task) {
    const std::lock_guard<std::mutex> alone(one_at_a_time_);
    task_ = &task;
    pieces_ = pieces;
    next_.store(0, std::memory_order_relaxed);
    busy_.store(threads() - 1, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    work();
    for (index_t left = threads() - 1; left > 0;) left = detail::awaited(busy_, left);
  }

 private:
  void work() {
    for (index_t i = next_.fetch_add(1, std::memory_order_relaxed); i < pieces_;
         i = next_.fetch_add(1, std::memory_order_relaxed)) {
      (*task_)(i);
    }
  }

  // Every thread takes part in every round, so that no round begins while a thread still reads the one before.
  void serve() {
    for (std::uint32_t round = 0;;) {
      const std::uint32_t current = detail::awaited(round_, round);
      if (current == round) continue;
      round = current;
      if (stopped_) return;
      work();
      if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
    }
  }

  void stop() {
    stopped_ = true;
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    for (std::thread& thread : started_) thread.join();
    started_.clear();
  }

  std::mutex one_at_a_time_;
  std::vector<std::thread> started_;
  const task_ref* task_ = nullptr;  // of this round
  index_t pieces_ = 0;              // of this round
  bool stopped_ = false;            // read when a round begins
  std::atomic<index_t> next_{0};    // piece that no thread has taken yet
  std::atomic<index_t> busy_{0};    // started threads that are in this round
  std::atomic<std::uint32_t> round_{0};
};

}  // namespace zoomr::inline v0

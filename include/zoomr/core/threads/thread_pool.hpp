// SPDX-License-Identifier: Apache-2.0
// L1. Threads to lend to caches, for programs that have none: `limits.threads = pool;`. zoomr.hpp does not include it.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/executor.hpp>
#include <zoomr/core/threads/offered_work.hpp>

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
    for (index_t first = 0; first < pieces; first += detail::offered_work::most_pieces) {
      work_.share(first, (std::min)(pieces - first, detail::offered_work::most_pieces), task);
    }
  }

 private:
  void serve() {
    for (std::uint32_t seen = 0; !stopped_.load(std::memory_order_acquire);) {
      while (work_.work()) {
      }
      seen = work_.await_signal(seen);
    }
  }

  void stop() {
    stopped_.store(true, std::memory_order_release);
    work_.signal();
    for (std::thread& thread : started_) thread.join();
    started_.clear();
  }

  std::mutex one_at_a_time_;
  std::vector<std::thread> started_;
  std::atomic<bool> stopped_{false};
  detail::offered_work work_;
};

}  // namespace zoomr::inline v0

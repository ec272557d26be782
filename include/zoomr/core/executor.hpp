// SPDX-License-Identifier: Apache-2.0
// L1. Whose threads do the work of a cache. The library starts none of its own accord: an engine lends those that it
// has, or makes a thread_pool (core/threads/thread_pool.hpp). Results do not depend on how many there are.
#pragma once

#include <zoomr/core/function_ref.hpp>
#include <zoomr/core/types.hpp>

#include <algorithm>    // std::min
#include <atomic>       // std::atomic
#include <concepts>     // std::convertible_to
#include <type_traits>  // std::is_lvalue_reference_v

namespace zoomr::inline v0 {

/// Work in numbered pieces: task(i) does piece i, and does not throw.
using task_ref = function_ref<void(index_t)>;

/// `run(pieces, task)` calls task(i) once for each i of 0 ... pieces - 1, on any threads, several at the same time or
/// not, and returns when all these calls have; what they wrote is then visible to the caller. No piece waits for
/// another. Where threads come and go, `run.present()` returns how many there are now.
template <class Run>
concept piece_runner = requires(Run& run, const task_ref& task) {
  run(index_t{2}, task);
};

/// The threads that may work on one call of a cache: a reference to what runs pieces of work, which must outlive the
/// cache. By default the calling thread alone.
class executor {
 public:
  /// Keys or values, in numbers, that are worth waking threads for: some 20 microseconds of one thread.
  static constexpr std::int64_t usually_worth = 1 << 18;

  static constexpr index_t most_threads = 1024;

  constexpr executor() = default;
  /// @param threads  how many pieces work is cut into; each has working memory of its own
  /// @param worth    calls that read fewer numbers are done by the calling thread
  template <piece_runner Run>
  executor(Run& run, index_t threads, std::int64_t worth = usually_worth)
      : run_(&run),
        call_([](void* runner, index_t pieces, const task_ref& task) { (*static_cast<Run*>(runner))(pieces, task); }),
        threads_(threads),
        worth_(worth) {
    if constexpr (requires { run.present(); }) {
      present_ = [](const void* runner) -> index_t { return static_cast<const Run*>(runner)->present(); };
    }
  }
  /// As many as its `threads()`: a thread_pool, or a crew, whose threads look for work already.
  template <piece_runner Pool>
  requires requires(const Pool& pool) {
    { pool.threads() } -> std::convertible_to<index_t>;
  }
  executor(Pool& pool) : executor(pool, pool.threads(), worth_for<Pool>()) {}  // NOLINT: implicit, for configs

  /// A temporary of either kind would be gone before the cache is there.
  template <class Pool, class... Settings>
  requires(!std::is_lvalue_reference_v<Pool> && piece_runner<Pool>) executor(Pool&&, Settings...) {  // NOLINT: implicit
    static_assert(std::is_lvalue_reference_v<Pool>,
                  "executor: threads are not copied and must outlive the cache, so they cannot be a temporary: name "
                  "them");
  }

  constexpr index_t threads() const { return threads_; }
  constexpr std::int64_t worth() const { return worth_; }
  /// As many of the threads as can work now: all of them, unless they come and go.
  executor present() const {
    executor copy = *this;
    if (present_ != nullptr) copy.threads_ = (std::min)(threads_, present_(run_));
    return copy;
  }

  /// @pre  pieces <= threads(), or it is serial
  void run(index_t pieces, const task_ref& task) const {
    if (call_ != nullptr) return call_(run_, pieces, task);
    for (index_t i = 0; i < pieces; ++i) task(i);
  }

 private:
  template <class Pool>
  static constexpr std::int64_t worth_for() {
    if constexpr (requires { Pool::worth; }) return Pool::worth;
    return usually_worth;
  }

  void* run_ = nullptr;
  void (*call_)(void*, index_t, const task_ref&) = nullptr;
  index_t (*present_)(const void*) = nullptr;  // nullptr: always `threads_`
  index_t threads_ = 1;
  std::int64_t worth_ = 0;
};

namespace detail {

/// body(i, thread) for each i of 0 ... count - 1. Whoever is free takes the next, so that a slow one holds up no other.
/// @param body  `thread` < workers.threads() is the number of the working memory; no two at the same time have the same
template <class Body>
void for_each_piece(const executor& workers, index_t count, Body body) {
  const index_t threads = (std::min)(workers.threads(), count);
  if (threads <= 1) {
    for (index_t i = 0; i < count; ++i) body(i, index_t{0});
    return;
  }
  std::atomic<index_t> next{0};
  auto work = [&](index_t thread) {
    for (index_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) body(i, thread);
  };
  workers.run(threads, task_ref(work));
}

}  // namespace detail
}  // namespace zoomr::inline v0

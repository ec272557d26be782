// SPDX-License-Identifier: Apache-2.0
// L3. Who moves blocks between tiers: in the caller's thread, or a thread beside it. Transfers are made in the order in
// which they were started, so that whoever starts them need not wait for one to start the next.
#pragma once

#include <zoomr/paging/tiers/tier_statistics.hpp>
#include <zoomr/paging/tiers/transfer.hpp>

#include <atomic>        // std::atomic
#include <chrono>        // std::chrono::steady_clock
#include <mutex>         // std::mutex
#include <system_error>  // std::system_error
#include <thread>        // std::thread

namespace zoomr::inline v0 {

/// Makes transfers one after the other. Failures are remembered. A ticket may be waited for again and again, in any
/// order; after `wait`, or once `done`, the caller sees the bytes, unless it has failed.
template <class T>
concept transfer_engine = requires(T& engine, const transfer& moved, ticket number) {
  { engine.start(moved) } -> std::same_as<ticket>;
  { engine.done(number) } -> std::same_as<bool>;        // whether it was made or has failed
  { engine.wait(number) } -> std::same_as<bool>;        // until it is done; false if it has failed
  { engine.why(number) } -> std::same_as<block_fault>;  // of one that has failed
  { engine.times() } -> std::same_as<transfer_times>;
};

/// The time from its construction to a call, by a clock that is never set.
class stopwatch {
 public:
  std::int64_t ns() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Makes each transfer when it is started: there is nothing to wait for, and nothing is hidden.
class sync_transfers {
 public:
  ticket start(const transfer& moved) {
    ++last_;
    const stopwatch watch;
    if (const block_fault fault = move_one(moved)) failed_.add(last_, fault);
    ns_ += watch.ns();
    return last_;
  }
  bool done(ticket) const { return true; }
  bool wait(ticket number) { return !failed_.has(number); }
  block_fault why(ticket number) const { return failed_.why(number); }
  transfer_times times() const { return {ns_, ns_}; }

 private:
  ticket last_ = 0;
  std::int64_t ns_ = 0;
  failed_tickets failed_;
};

/// Makes transfers in a thread of its own, while the caller goes on. All calls come from one thread.
///
/// Blocks are small, and waking a thread takes longer than copying one. So the thread looks for work for a while before
/// it sleeps, and a caller that has to wait makes what comes before itself.
class async_transfers {
 public:
  /// @throws error(capacity) if no thread can be started
  async_transfers() : worker_(started_thread([this] { work(); })) {}
  ~async_transfers() {
    started_ += end_mark;
    started_.notify_one();
    worker_.join();
  }
  async_transfers(const async_transfers&) = delete;
  async_transfers& operator=(const async_transfers&) = delete;

  /// Puts it after the others; with 256 waiting, the caller makes the oldest first.
  ticket start(const transfer& moved) {
    const ticket before = started_.load(std::memory_order_relaxed);
    if (before >= most_waiting) make_until(before - most_waiting + 1);
    waiting_[before % most_waiting] = moved;
    started_.store(before + 1, std::memory_order_release);
    started_.notify_one();
    return before + 1;
  }
  bool done(ticket number) const { return last_done_.load(std::memory_order_acquire) >= number; }
  bool wait(ticket number) {
    make_until(number);
    if (!any_failed_) return true;
    const std::lock_guard lock(making_);
    return !failed_.has(number);
  }
  block_fault why(ticket number) {
    const std::lock_guard lock(making_);
    return failed_.why(number);
  }
  transfer_times times() const { return {moving_ns_.load(std::memory_order_relaxed), waited_ns_}; }

 private:
  static constexpr ticket most_waiting = 256;
  static constexpr ticket end_mark = ticket{1} << 63;
  static constexpr int looks = 1000;  // before the thread sleeps: some 100 us

  template <class Run>
  static std::thread started_thread(Run run) {
    ZOOMR_TRY { return std::thread(run); }
    ZOOMR_CATCH(const std::system_error& cause) {
      detail::raise(errc::capacity, std::string("a thread for transfers cannot be started: ") + cause.what());
    }
  }

  // The caller makes transfers, or waits for the one that the thread is making, until `number` is done.
  void make_until(ticket number) {
    if (done(number)) return;
    const stopwatch watch;
    while (!done(number)) make_one();
    waited_ns_ += watch.ns();
  }

  // The thread: it ends when everything that was started is made and the mark of the end is set.
  void work() {
    for (int look = 0;; ++look) {
      const ticket started = started_.load(std::memory_order_acquire);
      if (!done(started & ~end_mark)) {
        make_one();
        look = 0;
      } else if (started >= end_mark) {
        return;  // what was started is made before the end
      } else if (look < looks) {
        std::this_thread::yield();
      } else {
        started_.wait(started);
      }
    }
  }

  // The next one, if the other thread has not been faster.
  void make_one() {
    const std::lock_guard lock(making_);
    const ticket next = last_done_.load(std::memory_order_relaxed);
    const ticket started = started_.load(std::memory_order_acquire) & ~end_mark;
    if (started == next) return;
    const transfer& moved = waiting_[next % most_waiting];
    const stopwatch watch;
    if (const block_fault fault = move_one(moved)) {
      failed_.add(next + 1, fault);
      any_failed_ = true;
    }
    moving_ns_.store(moving_ns_.load(std::memory_order_relaxed) + watch.ns(), std::memory_order_relaxed);
    last_done_.store(next + 1, std::memory_order_release);
  }

  transfer waiting_[most_waiting];
  std::atomic<ticket> started_ = 0;  // and the mark of the end
  std::atomic<ticket> last_done_ = 0;
  std::atomic<std::int64_t> moving_ns_ = 0;
  std::int64_t waited_ns_ = 0;
  std::atomic<bool> any_failed_ = false;
  std::mutex making_;      // by one thread at a time, in order
  failed_tickets failed_;  // under it
  std::thread worker_;     // last: it uses the rest
};

static_assert(transfer_engine<sync_transfers> && transfer_engine<async_transfers>);

}  // namespace zoomr::inline v0

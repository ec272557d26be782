// SPDX-License-Identifier: Apache-2.0
// L1. The engine's own threads, as they come: all of them enter an operator together, each with its number (`ith`,
// `nth` of ggml, an OpenMP region, the workers of an engine's pool). One leads: it calls the cache. The others do
// pieces of its work until it leaves. No thread is started, and none is woken between two pieces. zoomr.hpp does not
// include it.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/executor.hpp>
#include <zoomr/core/threads/waiting.hpp>

#include <algorithm>  // std::min
#include <atomic>     // std::atomic
#include <cstddef>    // std::size_t
#include <vector>     // std::vector

namespace zoomr::inline v0 {

/// Threads that enter together.
///
///   zoomr::crew crew(16);   // at most so many
///   limits.threads = crew;  // it must outlive the cache
///   ...                     // then, in the operator, in each of its threads:
///   crew.run(ith, nth, [&] { step.append(layer, keys, values), step.attend(layer, queries, out); });
///
/// How many enter may change from call to call. Outside of `run` calls of the cache are done by their own thread. A
/// waiting thread looks for some 20 microseconds, then lets others run, then sleeps.
class crew {
 public:
  /// Numbers that are worth sharing: the threads are there and look for work. A choice, not a measurement.
  static constexpr std::int64_t worth = executor::usually_worth / 8;

  /// @param most  threads that enter together, at most; a cache has working memory for so many
  explicit crew(index_t most) : places_(checked(most)) {}
  crew(const crew&) = delete;
  crew& operator=(const crew&) = delete;

  index_t threads() const { return static_cast<index_t>(places_.size()); }
  /// Those that are in `run` now, as its leader sees it: 1 outside.
  index_t present() const { return present_; }

  /// Each of `nth` threads calls it, with the numbers 0 ... nth - 1; number 0 leads. It returns, in all of them, when
  /// the leader's call has, whose results are visible then. One such call after the other: whoever is early for the
  /// next one waits.
  /// @param lead  lead(): called by the leader alone. What it throws the leader throws, once the others are let go;
  ///              they return as always, so that the leader must signal them if the engine is to stop
  /// @pre   0 <= ith < nth <= threads()
  /// @cost  no allocation, no lock; the leader waits until all others have entered and left
  template <class Lead>
  void run(index_t ith, index_t nth, Lead&& lead) {
    ZOOMR_EXPECTS(ith >= 0 && ith < nth && nth <= threads(), "crew: wanted 0 <= ith < nth <= the threads of the crew");
    if (ith > 0) return serve(places_[static_cast<std::size_t>(ith)]);
    const shift on_shift(*this, nth);
    lead();
  }

  /// Calls task(i) for each i of 0 ... pieces - 1, and returns when all are done; for `executor`.
  /// @pre  the leader calls it, or a thread outside of `run` while no thread leads; at most 65,535 pieces
  void operator()(index_t pieces, const task_ref& task) {
    if (present_ == 1 || pieces <= 1) {
      for (index_t i = 0; i < pieces; ++i) task(i);
      return;
    }
    ZOOMR_EXPECTS(pieces <= 0xffff, "crew: more than 65,535 pieces of work");
    task_ = &task;
    left_.store(pieces, std::memory_order_relaxed);
    const std::uint64_t before = offer_.load(std::memory_order_relaxed);
    offer_.store(((before >> 32) + 1) << 32 | static_cast<std::uint64_t>(pieces), std::memory_order_release);
    signal();
    while (work()) {
    }
    for (index_t left = left_.load(std::memory_order_acquire); left > 0;) left = detail::awaited(left_, left, patient);
  }

 private:
  static constexpr detail::patience patient{500, 200};

  /// Of one of the numbers: which call it may enter, and which it has left. Calls are counted from 1.
  struct alignas(64) place {
    std::atomic<std::uint32_t> entry{0};
    std::atomic<std::uint32_t> exit{0};
  };

  static std::size_t checked(index_t most) {
    ZOOMR_EXPECTS(most >= 1 && most <= executor::most_threads, "crew: wanted 1 to 1024 threads");
    return static_cast<std::size_t>(most);
  }

  /// The time that the leader is in `run`.
  class shift {
   public:
    shift(crew& whole, index_t nth) : crew_(whole) { crew_.open(nth); }
    ~shift() { crew_.close(); }
    shift(const shift&) = delete;
    shift& operator=(const shift&) = delete;

   private:
    crew& crew_;
  };

  void open(index_t nth) {
    present_ = nth;
    ++call_;
    for (index_t i = 1; i < nth; ++i)
      places_[static_cast<std::size_t>(i)].entry.store(call_, std::memory_order_release);
    if (nth > 1) signal();
  }
  void close() {
    const index_t nth = present_;
    present_ = 1;
    closed_.store(call_, std::memory_order_release);
    if (nth > 1) signal();
    for (index_t i = 1; i < nth; ++i) {
      std::atomic<std::uint32_t>& exit = places_[static_cast<std::size_t>(i)].exit;
      for (std::uint32_t at = exit.load(std::memory_order_acquire); at != call_;) {
        at = detail::awaited(exit, at, patient);
      }
    }
  }
  void signal() {
    signals_.fetch_add(1, std::memory_order_release);
    signals_.notify_all();
  }

  void serve(place& own) {
    const std::uint32_t left = own.exit.load(std::memory_order_relaxed);
    std::uint32_t call = left;
    for (;;) {
      const std::uint32_t signals = signals_.load(std::memory_order_acquire);
      call = own.entry.load(std::memory_order_acquire);
      if (call != left) break;
      detail::awaited(signals_, signals, patient);
    }
    for (;;) {
      const std::uint32_t signals = signals_.load(std::memory_order_acquire);
      if (work()) continue;
      if (closed_.load(std::memory_order_acquire) == call) break;
      detail::awaited(signals_, signals, patient);
    }
    own.exit.store(call, std::memory_order_release);
    own.exit.notify_all();
  }

  // Takes a piece and does it. While a piece is taken and not done, what was offered stays.
  // @return  false if there is none
  bool work() {
    std::uint64_t offer = offer_.load(std::memory_order_acquire);
    std::uint64_t piece;
    do {
      piece = offer >> 16 & 0xffff;
      if (piece == (offer & 0xffff)) return false;
    } while (!offer_.compare_exchange_weak(offer, offer + (1 << 16), std::memory_order_acq_rel));
    (*task_)(static_cast<index_t>(piece));
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_all();
    return true;
  }

  std::vector<place> places_;                          // [threads]
  index_t present_ = 1;                                // the leader's
  std::uint32_t call_ = 0;                             // the leader's: which one it is in
  const task_ref* task_ = nullptr;                     // of what is offered
  alignas(64) std::atomic<std::uint64_t> offer_{0};    // 32 bits: which offer; 16: pieces taken; 16: pieces
  alignas(64) std::atomic<index_t> left_{0};           // pieces that are not done
  std::atomic<std::uint32_t> closed_{0};               // the last call that the leader has left
  alignas(64) std::atomic<std::uint32_t> signals_{0};  // grows whenever there is something new
};

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L1. The engine's own threads, as they come: all of them enter an operator together, each with its number (`ith`,
// `nth` of ggml, an OpenMP region, the workers of an engine's pool). One leads: it calls the cache. The others do
// pieces of its work until it leaves. No thread is started, and none is woken between two pieces. zoomr.hpp does not
// include it.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/executor.hpp>
#include <zoomr/core/threads/offered_work.hpp>

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
    ZOOMR_EXPECTS(pieces <= detail::offered_work::most_pieces, "crew: more than 65,535 pieces of work");
    work_.share(0, pieces, task, patient);
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
    if (nth > 1) work_.signal();
  }
  void close() {
    const index_t nth = present_;
    present_ = 1;
    closed_.store(call_, std::memory_order_release);
    if (nth > 1) work_.signal();
    for (index_t i = 1; i < nth; ++i) {
      std::atomic<std::uint32_t>& exit = places_[static_cast<std::size_t>(i)].exit;
      for (std::uint32_t at = exit.load(std::memory_order_acquire); at != call_;) {
        at = detail::awaited(exit, at, patient);
      }
    }
  }

  void serve(place& own) {
    const std::uint32_t left = own.exit.load(std::memory_order_relaxed);
    std::uint32_t call = left;
    for (;;) {
      const std::uint32_t signals = work_.signals();
      call = own.entry.load(std::memory_order_acquire);
      if (call != left) break;
      work_.await_signal(signals, patient);
    }
    for (;;) {
      const std::uint32_t signals = work_.signals();
      if (work_.work()) continue;
      if (closed_.load(std::memory_order_acquire) == call) break;
      work_.await_signal(signals, patient);
    }
    own.exit.store(call, std::memory_order_release);
    own.exit.notify_all();
  }

  std::vector<place> places_;             // [threads]
  index_t present_ = 1;                   // the leader's
  std::uint32_t call_ = 0;                // the leader's: which one it is in
  std::atomic<std::uint32_t> closed_{0};  // the last call that the leader has left
  detail::offered_work work_;             // and what threads wait for
};

}  // namespace zoomr::inline v0

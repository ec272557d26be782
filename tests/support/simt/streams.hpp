// SPDX-License-Identifier: Apache-2.0
// Part of support/simt.hpp: streams. There is one, which does everything at once, and side streams, whose work is done
// between fork and join, sooner or later as simt::how says.
#pragma once

#include <support/simt/block.hpp>

#include <chrono>      // std::chrono::steady_clock
#include <deque>       // std::deque
#include <functional>  // std::function
#include <utility>     // std::exchange

namespace simt {

struct stream {
  bool beside = false;
};

/// What side streams have been given and not done yet.
inline std::deque<std::function<void()>> held;

inline void do_next_held() {
  const auto work = std::move(held.front());
  held.pop_front();
  work();
}

inline void enqueue(stream on, std::function<void()> work) {
  if (on.beside && how.side != side_order::at_fork) return held.push_back(std::move(work));
  if (!on.beside && how.side == side_order::between && !held.empty()) do_next_held();
  work();
}

/// The shim's zoomr::side_stream.
class side_stream {
 public:
  side_stream() = default;
  side_stream(const side_stream&) = delete;
  side_stream& operator=(const side_stream&) = delete;
  ~side_stream() {
    if (is_forked_) held.clear();  // what it would work on goes
  }

  stream fork(stream) {
    is_forked_ = true;
    return {true};
  }
  void join(stream = {}) {
    if (!std::exchange(is_forked_, false)) return;
    while (!held.empty()) do_next_held();
  }

 private:
  bool is_forked_ = false;
};

/// The shim's zoomr::stream_timer: the host's clock.
class stream_timer {
 public:
  void start(stream) { at_ = clock::now(); }
  void stop(stream) { taken_ = clock::now() - at_; }
  double seconds() const { return std::chrono::duration<double>(taken_).count(); }

 private:
  using clock = std::chrono::steady_clock;
  clock::time_point at_;
  clock::duration taken_{};
};

}  // namespace simt

// SPDX-License-Identifier: Apache-2.0
// Transfers under the test's control: when each is made, and which one fails.
#pragma once

#include <zoomr/paging/tiers/transfers.hpp>

#include <deque>       // std::deque
#include <functional>  // std::function

namespace unit {

/// What the engines of one thread do; set before a pool is made.
struct transfer_script {
  std::function<int()> made_now = [] { return 0; };  // of those that wait, at each call
  std::int64_t fails = -1;                           // this one, counted from 0, fails, and spoils what it writes
  std::int64_t made = 0;                             // so far
};

using zoomr::ticket;
using zoomr::transfer;

inline transfer_script& script() {
  static thread_local transfer_script one;
  return one;
}

/// Makes transfers when the script says so, or when somebody waits: one thread, any schedule.
class scripted_transfers {
 public:
  ticket start(const transfer& one) {
    waiting_.push_back(one);
    ++started_;
    some();
    return started_;
  }
  bool done(ticket of) {
    some();
    return made_ >= of;
  }
  bool wait(ticket of) {
    while (made_ < of) next();
    return !failed_.has(of);
  }
  zoomr::block_fault why(ticket of) const { return failed_.why(of); }
  zoomr::transfer_times times() const { return {}; }

 private:
  void some() {
    for (int left = script().made_now(); left > 0 && !waiting_.empty(); --left) next();
  }
  void next() {
    const transfer one = waiting_.front();
    waiting_.pop_front();
    ++made_;
    const bool fails = script().made++ == script().fails;
    if (fails && !one.writes) *static_cast<std::uint8_t*>(one.memory) ^= 0xee;
    const zoomr::block_fault fault = fails ? zoomr::block_fault{} : zoomr::move_one(one);
    if (fails || fault) failed_.add(made_, fault);
  }

  std::deque<transfer> waiting_;
  ticket started_ = 0;
  ticket made_ = 0;
  zoomr::failed_tickets failed_;
};

static_assert(zoomr::transfer_engine<scripted_transfers>);

}  // namespace unit

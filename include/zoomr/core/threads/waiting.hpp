// SPDX-License-Identifier: Apache-2.0
// L1. How a thread waits for another: it looks for some microseconds, since work follows work closely; then it lets
// others run; then it sleeps.
#pragma once

#include <zoomr/core/platform.hpp>

#include <atomic>  // std::atomic
#include <thread>  // std::this_thread::yield

namespace zoomr::inline v0::detail {

/// How long before it sleeps. A look takes 20 to 40 ns.
struct patience {
  int looks = 500;
  int yields = 0;
};

/// Waits until `value` is something else than `old`, and returns that; or returns earlier with what it is. Whoever
/// changes the value calls `notify_all`.
template <class T>
T awaited(const std::atomic<T>& value, T old, patience before_sleep = {}) {
  for (int i = 0; i < before_sleep.looks + before_sleep.yields; ++i) {
    const T current = value.load(std::memory_order_acquire);
    if (current != old) return current;
    if (i >= before_sleep.looks) {
      std::this_thread::yield();
      continue;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace zoomr::inline v0::detail

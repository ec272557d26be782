// SPDX-License-Identifier: Apache-2.0
// L3. Who moves blocks between tiers: in the caller's thread, or a thread beside it. Transfers are made in the order in
// which they were started, so that whoever starts them need not wait for one to start the next.
#pragma once

#include <zoomr/tier/block_file.hpp>

#include <algorithm>           // std::binary_search
#include <condition_variable>  // std::condition_variable
#include <mutex>               // std::mutex
#include <thread>              // std::thread

namespace zoomr {
inline namespace v0 {

/// A transfer that was started; 0: none.
using ticket = std::uint64_t;

/// One block from memory or a file to memory or a file.
struct transfer {
  const void* from = nullptr;  // nullptr: block `block` of the file
  void* to = nullptr;          // nullptr: block `block` of the file
  byte_count bytes = 0;
  block_file* file = nullptr;
  std::int64_t block = 0;
  ticket after = 0;  // if that one has failed, this one fails too
};

/// @return  false if it has failed
inline bool moved(const transfer& one) {
  try {
    if (one.from == nullptr) {
      one.file->read(one.block, one.to);
    } else if (one.to == nullptr) {
      one.file->write(one.block, one.from);
    } else {
      std::memcpy(one.to, one.from, static_cast<std::size_t>(one.bytes));
    }
    return true;
  } catch (const error&) {
    return false;
  }
}

/// Makes transfers one after the other. Failures are remembered.
template <class T>
concept transfer_engine = requires(T& engine, const transfer& one, ticket of) {
  { engine.start(one) } -> std::same_as<ticket>;
  { engine.done(of) } -> std::same_as<bool>;  // whether it was made or has failed
  { engine.wait(of) } -> std::same_as<bool>;  // until it is done; false if it has failed
};

/// The failures so far: 8 bytes for each.
class failed_tickets {
 public:
  void add(ticket of) { failed_.push_back(of); }  // later ones have higher numbers
  bool has(ticket of) const { return std::binary_search(failed_.begin(), failed_.end(), of); }

 private:
  std::vector<ticket> failed_;
};

/// Makes each transfer when it is started.
class transfers_at_once {
 public:
  ticket start(const transfer& one) {
    ++last_;
    if (failed_.has(one.after) || !moved(one)) failed_.add(last_);
    return last_;
  }
  bool done(ticket) const { return true; }
  bool wait(ticket of) { return !failed_.has(of); }

 private:
  ticket last_ = 0;
  failed_tickets failed_;
};

/// Makes transfers in a thread of its own, while the caller goes on. All calls come from one thread.
class transfers_beside {
 public:
  transfers_beside() : worker_([this] { work(); }) {}
  ~transfers_beside() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }
  transfers_beside(const transfers_beside&) = delete;
  transfers_beside& operator=(const transfers_beside&) = delete;

  ticket start(const transfer& one) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return started_ - made_ < most_waiting; });
    waiting_[started_++ % most_waiting] = one;
    lock.unlock();
    changed_.notify_all();
    return started_;
  }
  bool done(ticket of) {
    const std::lock_guard lock(mutex_);
    return made_ >= of;
  }
  bool wait(ticket of) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return made_ >= of; });
    return !failed_.has(of);
  }

 private:
  static constexpr ticket most_waiting = 256;

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ends_ || made_ < started_; });
      if (made_ == started_) return;  // what was started is made before the end
      const transfer one = waiting_[made_ % most_waiting];
      const bool in_vain = failed_.has(one.after);
      lock.unlock();
      const bool good = !in_vain && moved(one);
      lock.lock();
      ++made_;
      if (!good) failed_.add(made_);
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  transfer waiting_[most_waiting];
  ticket started_ = 0;
  ticket made_ = 0;
  bool ends_ = false;
  failed_tickets failed_;
  std::thread worker_;  // last: it uses the rest
};

static_assert(transfer_engine<transfers_at_once> && transfer_engine<transfers_beside>);

}  // namespace v0
}  // namespace zoomr

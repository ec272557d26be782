// SPDX-License-Identifier: Apache-2.0
// L1. Ranks in one process, a thread each: what tests have, and engines that drive each device from a thread.
#pragma once

#include <zoomr/core/ranks/rank_group.hpp>

#include <algorithm>           // std::copy_n
#include <array>               // std::array
#include <chrono>              // std::chrono::milliseconds
#include <condition_variable>  // std::condition_variable
#include <cstddef>             // std::size_t
#include <mutex>               // std::mutex, std::unique_lock
#include <vector>              // std::vector

namespace zoomr::inline v0 {

/// Ranks that meet in memory. Each thread uses the end of its own rank alone.
/// @code
///   thread_ranks ranks(2);
///   limits.ranks.group = ranks.end(rank);  // in the thread of each rank
/// @endcode
class thread_ranks {
 public:
  class member {
   public:
    index_t rank() const { return rank_; }
    index_t ranks() const { return ranks_->count(); }
    /// As of a `communicator`.
    index_t all_gather(view<const std::int64_t> sent, view<std::int64_t, 2> received) {
      return ranks_->gather(rank_, sent, received);
    }

   private:
    friend class thread_ranks;
    thread_ranks* ranks_ = nullptr;
    index_t rank_ = 0;
  };

  /// @param patience  how long a rank waits for the others
  explicit thread_ranks(index_t ranks, std::chrono::milliseconds patience = std::chrono::seconds(30))
      : ends_(static_cast<std::size_t>(ranks)), posts_(static_cast<std::size_t>(ranks)), patience_(patience) {
    for (index_t rank = 0; rank < ranks; ++rank) {
      end(rank).ranks_ = this;
      end(rank).rank_ = rank;
    }
  }
  thread_ranks(const thread_ranks&) = delete;
  thread_ranks& operator=(const thread_ranks&) = delete;

  index_t count() const { return static_cast<index_t>(ends_.size()); }
  member& end(index_t rank) { return ends_[static_cast<std::size_t>(rank)]; }

 private:
  // Nobody sends its second next message before all have sent the next one, so two of each are enough.
  struct post {
    std::int64_t sent = 0;
    std::array<std::vector<std::int64_t>, 2> messages;
  };

  index_t gather(index_t rank, view<const std::int64_t> sent, view<std::int64_t, 2> received) {
    std::unique_lock lock(mutex_);
    post& own = posts_[static_cast<std::size_t>(rank)];
    const std::int64_t number = ++own.sent;
    const auto place = static_cast<std::size_t>(number % 2);
    own.messages[place].assign(sent.begin(), sent.end());
    changed_.notify_all();
    const auto silent = [&]() -> index_t {
      for (index_t other = 0; other < count(); ++other) {
        if (posts_[static_cast<std::size_t>(other)].sent < number) return other;
      }
      return -1;
    };
    if (!changed_.wait_for(lock, patience_, [&] { return silent() < 0; })) return silent();
    for (index_t other = 0; other < count(); ++other) {
      const std::vector<std::int64_t>& message = posts_[static_cast<std::size_t>(other)].messages[place];
      if (message.size() != static_cast<std::size_t>(sent.size())) return other;
      std::copy_n(message.data(), message.size(), received[other].data());
    }
    return -1;
  }

  std::vector<member> ends_;
  std::vector<post> posts_;
  std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

static_assert(communicator<thread_ranks::member>);

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L1. Ranks over MPI. Include it where MPI is; zoomr.hpp does not.
#pragma once

#include <zoomr/core/ranks/rank_group.hpp>

#include <mpi.h>

#include <algorithm>  // std::copy_n
#include <chrono>     // std::chrono::milliseconds, std::chrono::steady_clock
#include <cstddef>    // std::size_t
#include <thread>     // std::this_thread::yield
#include <vector>     // std::vector

namespace zoomr::inline v0 {

/// The ranks of an MPI communicator. Each message goes to each other rank by itself, so that one which does not answer
/// is known by its number; a collective call would wait for ever.
/// @cost  ranks - 1 messages sent and received
/// @pre   MPI is initialised, and is not finalised before this goes; one thread at a time calls it
class mpi_ranks {
 public:
  /// Every rank of `of` makes one.
  /// @param patience  how long a rank waits for the others
  explicit mpi_ranks(MPI_Comm ranks, std::chrono::milliseconds patience = std::chrono::seconds(30))
      : patience_(patience) {
    MPI_Comm_dup(ranks, &ranks_);
    MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &count_);
    int* most = nullptr;
    int found = 0;
    MPI_Comm_get_attr(ranks_, MPI_TAG_UB, static_cast<void*>(&most), &found);
    if (found != 0) most_tag_ = *most;
    requests_.resize(2 * static_cast<std::size_t>(count_), MPI_REQUEST_NULL);
  }
  mpi_ranks(const mpi_ranks&) = delete;
  mpi_ranks& operator=(const mpi_ranks&) = delete;
  ~mpi_ranks() {
    if (!broken_) MPI_Comm_free(&ranks_);
  }

  index_t rank() const { return rank_; }
  index_t ranks() const { return count_; }

  /// As of a `communicator`. After a rank has not answered it is over: later calls name the same rank at once.
  index_t all_gather(view<const std::int64_t> sent, view<std::int64_t, 2> received) {
    if (broken_) return silent_;
    tag_ = tag_ == most_tag_ ? 0 : tag_ + 1;
    for (int other = 0; other < count_; ++other) {
      if (other == rank_) continue;
      MPI_Irecv(received[other].data(), sent.size(), MPI_INT64_T, other, tag_, ranks_, &receives(other));
      MPI_Isend(sent.data(), sent.size(), MPI_INT64_T, other, tag_, ranks_, &sends(other));
    }
    std::copy_n(sent.data(), sent.size(), received[rank_].data());
    const auto until = std::chrono::steady_clock::now() + patience_;
    for (int other = 0; other < count_; ++other) {
      if (other != rank_ && !arrives(other, sent.size(), until)) return give_up(other);
    }
    return -1;
  }

 private:
  MPI_Request& receives(int other) { return requests_[static_cast<std::size_t>(other)]; }
  MPI_Request& sends(int other) { return requests_[static_cast<std::size_t>(count_ + other)]; }

  // Both ways, and of the right length.
  bool arrives(int other, index_t count, std::chrono::steady_clock::time_point until) {
    for (MPI_Request* const request : {&receives(other), &sends(other)}) {
      MPI_Status status;
      for (int done = 0; done == 0;) {
        if (MPI_Test(request, &done, &status) != MPI_SUCCESS) return false;
        if (done == 0 && std::chrono::steady_clock::now() > until) return false;
        if (done == 0) std::this_thread::yield();
      }
      if (request == &sends(other)) break;
      int received = 0;
      MPI_Get_count(&status, MPI_INT64_T, &received);
      if (received != count) return false;
    }
    return true;
  }
  index_t give_up(int other) {
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
    broken_ = true;
    return silent_ = other;
  }

  MPI_Comm ranks_ = MPI_COMM_NULL;
  int rank_ = 0, count_ = 1, tag_ = 0, most_tag_ = 32767;
  bool broken_ = false;
  index_t silent_ = -1;
  std::vector<MPI_Request> requests_;  // [2, ranks]  receives, sends
  std::chrono::milliseconds patience_;
};

static_assert(communicator<mpi_ranks>);

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L1. Ranks over NCCL, a device each. Include it where NCCL is; zoomr.cuh does not.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/ranks/rank_group.hpp>

#include <nccl.h>

#include <cstdint>  // std::int64_t
#include <string>   // std::string

namespace zoomr::inline v0 {

/// The ranks of an NCCL communicator, which is the engine's and outlives this. What is enqueued is one all-reduce on
/// the stream of the cache's step. A rank that is gone is found by whoever watches the communicator
/// (ncclCommGetAsyncError), as with the engine's own collectives, among which these take their place.
/// @pre  as NCCL's: all ranks enqueue the collectives of one communicator in the same order
class nccl_ranks {
 public:
  using stream = cudaStream_t;

  /// @throws error(ranks) if the communicator is none, or has failed
  explicit nccl_ranks(ncclComm_t ranks) : ranks_(ranks) {
    expect(ncclCommUserRank(ranks_, &rank_), "the communicator does not say which rank this is");
    expect(ncclCommCount(ranks_, &count_), "the communicator does not say how many ranks there are");
  }

  index_t rank() const { return rank_; }
  index_t ranks() const { return count_; }

  /// As of a `device_communicator`.
  /// @throws error(ranks) if it cannot be enqueued
  void add_up(std::int64_t* numbers, std::int64_t count, stream queue) const {
    constexpr const char* failed = "votes could not be added up";
    // as unsigned numbers, which may exceed their range
    ncclResult_t code =
        ncclAllReduce(numbers, numbers, static_cast<std::size_t>(count), ncclUint64, ncclSum, ranks_, queue);
    while (code == ncclInProgress) expect(ncclCommGetAsyncError(ranks_, &code), failed);  // is not enqueued yet
    expect(code, failed);
  }

 private:
  static void expect(ncclResult_t code, const char* what) {
    if (code == ncclSuccess) return;
    detail::raise(errc::ranks, std::string("ranks: ") + what + ": " + ncclGetErrorString(code));
  }

  ncclComm_t ranks_;
  int rank_ = 0, count_ = 1;
};

static_assert(device_communicator<nccl_ranks>);

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L1. The ranks that share one model: processes or threads that pass the same tokens at the same time, each with some
// heads of every layer. The library has no transport of its own: an engine lends the one that it has, or takes MPI
// (mpi_ranks.hpp), or threads (thread_ranks.hpp).
#pragma once

#include <zoomr/core/view.hpp>

#include <concepts>     // std::convertible_to
#include <cstdint>      // std::int64_t
#include <type_traits>  // std::is_lvalue_reference_v

namespace zoomr::inline v0 {

/// One rank's end of what connects them. `all_gather(sent, received)` sends [n] numbers to each rank and receives those
/// of all, its own too, into [ranks, n], in the order of the ranks. All ranks call it as often, with the same n.
///
/// @return  -1 when all has come; otherwise a rank that has not answered in time, or whose message has another length.
///          It does not throw, and does not wait for ever.
template <class C>
concept communicator = requires(C& end, view<const std::int64_t> sent, view<std::int64_t, 2> received) {
  { end.rank() } -> std::convertible_to<index_t>;
  { end.ranks() } -> std::convertible_to<index_t>;
  { end.all_gather(sent, received) } -> std::convertible_to<index_t>;
};

/// A reference to a communicator, which must outlive the cache. By default there is one rank.
class rank_group {
 public:
  static constexpr index_t most_ranks = 1024;

  constexpr rank_group() = default;
  template <communicator C>
  rank_group(C& end)  // NOLINT: implicit, for configs
      : end_(&end),
        call_([](void* to, view<const std::int64_t> sent, view<std::int64_t, 2> received) -> index_t {
          return static_cast<C*>(to)->all_gather(sent, received);
        }),
        rank_(end.rank()),
        ranks_(end.ranks()) {}
  /// A temporary would be gone before the cache is there.
  template <class C>
  requires(!std::is_lvalue_reference_v<C> && communicator<C>) rank_group(C&&) {  // NOLINT: implicit
    static_assert(std::is_lvalue_reference_v<C>,
                  "rank_group: a communicator is not copied and must outlive the cache, so it cannot be a temporary: "
                  "name it");
  }

  constexpr index_t rank() const { return rank_; }
  constexpr index_t ranks() const { return ranks_; }
  /// @pre  ranks() > 1
  index_t all_gather(view<const std::int64_t> sent, view<std::int64_t, 2> received) const {
    return call_(end_, sent, received);
  }

 private:
  void* end_ = nullptr;
  index_t (*call_)(void*, view<const std::int64_t>, view<std::int64_t, 2>) = nullptr;
  index_t rank_ = 0;
  index_t ranks_ = 1;
};

}  // namespace zoomr::inline v0

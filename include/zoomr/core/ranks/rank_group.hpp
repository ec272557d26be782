// SPDX-License-Identifier: Apache-2.0
// L1. The ranks that share one model: processes or threads that pass the same tokens at the same time, each with some
// heads of every layer. The library has no transport of its own: an engine lends the one that it has, or takes MPI
// (mpi_ranks.hpp), threads (thread_ranks.hpp), or between devices NCCL (nccl_ranks.hpp).
#pragma once

#include <zoomr/core/view.hpp>

#include <concepts>     // std::convertible_to
#include <cstdint>      // std::int64_t
#include <type_traits>  // std::is_lvalue_reference_v, std::is_same_v

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

/// The same of ranks whose caches are on devices. `add_up(numbers, count, stream)` enqueues that each number, on the
/// device, becomes the sum of those of all ranks, modulo 2^64. It waits for nothing, and can be captured in a graph.
/// All ranks call it as often, with the same count, in the order of their streams.
template <class C>
concept device_communicator = requires(C& end, std::int64_t* numbers, std::int64_t count, typename C::stream stream) {
  { end.rank() } -> std::convertible_to<index_t>;
  { end.ranks() } -> std::convertible_to<index_t>;
  end.add_up(numbers, count, stream);
};

/// A reference to a communicator, of caches on the host, on devices, or both, which must outlive the cache. By default
/// there is one rank.
class rank_group {
 public:
  static constexpr index_t most_ranks = 1024;

  constexpr rank_group() = default;
  template <class C>
  requires(!std::is_same_v<C, rank_group> && (communicator<C> || device_communicator<C>))
      rank_group(C& end)  // NOLINT: implicit, for configs
      : end_(&end), rank_(end.rank()), ranks_(end.ranks()) {
    if constexpr (communicator<C>) {
      gather_ = [](void* to, view<const std::int64_t> sent, view<std::int64_t, 2> received) -> index_t {
        return static_cast<C*>(to)->all_gather(sent, received);
      };
    }
    if constexpr (device_communicator<C>) {
      add_up_ = [](void* to, std::int64_t* numbers, std::int64_t count, const void* stream) {
        static_cast<C*>(to)->add_up(numbers, count, *static_cast<const typename C::stream*>(stream));
      };
    }
  }
  /// A temporary would be gone before the cache is there.
  template <class C>
  requires(!std::is_lvalue_reference_v<C> && (communicator<C> || device_communicator<C>))
      rank_group(C&&) {  // NOLINT: implicit
    static_assert(std::is_lvalue_reference_v<C>,
                  "rank_group: a communicator is not copied and must outlive the cache, so it cannot be a temporary: "
                  "name it");
  }

  constexpr index_t rank() const { return rank_; }
  constexpr index_t ranks() const { return ranks_; }
  /// It is one of the host's caches.
  constexpr bool gathers() const { return gather_ != nullptr; }
  /// @pre  gathers()
  index_t all_gather(view<const std::int64_t> sent, view<std::int64_t, 2> received) const {
    return gather_(end_, sent, received);
  }
  /// It is one of devices.
  constexpr bool adds_up() const { return add_up_ != nullptr; }
  /// @param stream  what the communicator calls a stream
  /// @pre   adds_up()
  template <class Stream>
  void add_up(std::int64_t* numbers, std::int64_t count, Stream stream) const {
    add_up_(end_, numbers, count, &stream);
  }

 private:
  void* end_ = nullptr;
  index_t (*gather_)(void*, view<const std::int64_t>, view<std::int64_t, 2>) = nullptr;
  void (*add_up_)(void*, std::int64_t*, std::int64_t, const void*) = nullptr;
  index_t rank_ = 0;
  index_t ranks_ = 1;
};

}  // namespace zoomr::inline v0

// SPDX-License-Identifier: Apache-2.0
// L4. Where details are meant to live. A `placement` keeps everything in one memory; `tiered` really moves bytes.
#pragma once

#include <zoomr/paging/page_pool.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// One memory for everything. What is counted as device memory (`memory_use`, `statistics::device_peak`) is accounting:
/// with `details_on_host` only what a step attends counts of the details, though nothing is moved.
struct placement {
  using role = role::placement;
  static constexpr const char* name = "placement";
  static constexpr bool prefetch = false;

  bool details_on_host = false;  // accounting only: an engine may keep details on the host
  bool frees_unreachable =
      false;  // pages that no query can reach any more, nor after a rollback of
              // `config.rollback_tokens`, go back to the pool: for policies that never choose details

  constexpr const char* problem() const {
    return details_on_host && frees_unreachable
               ? "placement: what is freed lies nowhere: details_on_host and frees_unreachable cannot both be set"
               : nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("details_on_host", self.details_on_host);
    visit("frees_unreachable", self.frees_unreachable);
  }
  friend constexpr bool operator==(const placement&, const placement&) = default;
};

static_assert(component<placement>);

/// A placement that decides where pages are (`moves`, `pool<T>`), and may fail to bring them. Its pool has the members
/// of page_pool; where `may_fail` is true, commits are made such that a failure leaves the sequence as it was.
template <class Placement>
concept tiered_placement = requires {
  requires Placement::moves;
};

namespace detail {
template <class Placement, class T>
struct pool_of_placement {
  using type = page_pool<T>;
};
template <class Placement, class T>
requires requires { typename Placement::template pool<T>; }
struct pool_of_placement<Placement, T> {
  using type = typename Placement::template pool<T>;
};
}  // namespace detail

/// Where a placement keeps pages of `T`: its own pool, or one memory.
template <class Placement, class T>
using pool_of = typename detail::pool_of_placement<Placement, T>::type;

}  // namespace zoomr::inline v0

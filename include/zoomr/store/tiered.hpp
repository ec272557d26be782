// SPDX-License-Identifier: Apache-2.0
// L4. Details in tiers whose bytes really move.
#pragma once

#include <zoomr/concepts.hpp>
#include <zoomr/tier/tiered_pool.hpp>

namespace zoomr {
inline namespace v0 {

/// Details live in host memory, or in a file under it (`config.tiers`); the device holds as many pages as its bytes
/// allow beside summaries and tables. What is attended comes to the device page by page, in the order in which it is
/// added up, so that any capacity gives the same bits; pages that are full are written to the tier below while the next
/// tokens come. Budgets of a policy say what is attended, `config.tiers` says what stays.
/// @tparam Replacement  which page makes room: farthest_use, least_recent, least_frequent
/// @tparam Engine       who moves bytes: transfers_beside (a thread), transfers_at_once (the caller)
template <replacement Replacement = farthest_use, transfer_engine Engine = transfers_beside>
struct tiered {
  using role = role::store;
  static constexpr const char* name = "tiered";
  static constexpr bool offloads = true;
  static constexpr bool evicts = false;
  static constexpr bool moves = true;
  template <class T>
  using pool = tiered_pool<T, Replacement, Engine>;

  bool prefetch = true;  // while one layer is attended, what the next will read comes, where that is known

  constexpr const char* problem() const { return nullptr; }
  static constexpr void each_field(auto& self, auto visit) { visit("prefetch", self.prefetch); }
  friend constexpr bool operator==(const tiered&, const tiered&) = default;
};

static_assert(component<tiered<>>);

}  // namespace v0
}  // namespace zoomr

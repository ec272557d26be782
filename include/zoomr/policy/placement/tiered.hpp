// SPDX-License-Identifier: Apache-2.0
// L4. Details in tiers whose bytes really move. A page that cannot be brought, from a file as a rule, fails the item
// that needs it: its sequence stays as it was, and the others of the step go on.
#pragma once

#include <zoomr/paging/tiers/tiered_pool.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Details live in host memory, or in a file under it (`config.tiers`); the device holds as many pages as its bytes
/// allow beside summaries and tables. What is attended comes to the device page by page, in the order in which it is
/// added up, so that any capacity gives the same bits; pages that are full are written to the tier below while the next
/// tokens come. Budgets of a policy say what is attended, `config.tiers` says what stays.
/// @tparam Replacement  which page makes room: cyclic_mru, lru, lfu
/// @tparam Engine       who moves bytes: async_transfers (a thread), sync_transfers (the caller)
template <replacement Replacement = cyclic_mru, transfer_engine Engine = async_transfers>
struct tiered {
  using role = role::placement;
  static constexpr const char* name = "tiered";
  static constexpr bool details_on_host = true;
  static constexpr bool frees_unreachable = false;
  static constexpr bool moves = true;
  using order = Replacement;
  template <class T>
  using pool = tiered_pool<T, Replacement, Engine>;

  bool prefetch = true;  // while one layer is attended, what the next will read comes, where that is known

  static constexpr void each_field(auto& self, auto visit) { visit("prefetch", self.prefetch); }
  friend constexpr bool operator==(const tiered&, const tiered&) = default;
};

static_assert(component<tiered<>>);

}  // namespace zoomr::inline v0

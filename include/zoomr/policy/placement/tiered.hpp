// SPDX-License-Identifier: Apache-2.0
// L4. Details in tiers whose bytes really move. A page that cannot be brought from its file fails the item that needs
// it: its sequence stays as it was, and the others of the step go on.
#pragma once

#include <zoomr/paging/tiers/tiered_pool.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Of a host's cache details live in memory over a file (`config.tiers`): memory holds as many pages as its bytes allow
/// beside summaries and tables. What is attended comes there page by page, in the order in which it is added up, so
/// that any capacity gives the same bits; pages that are full are written to the file while the next tokens come. Of a
/// device's cache they live in an arena over pinned memory (device_cache.cuh), to which the parameters mean nothing.
/// Budgets of a policy limit what is attended, `config.tiers` what stays in memory.
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

  bool prefetch = true;  // while one layer is attended, what the next will certainly read comes

  static constexpr void each_field(auto& self, auto visit) { visit("prefetch", self.prefetch); }
  friend constexpr bool operator==(const tiered&, const tiered&) = default;
};

static_assert(component<tiered<>>);

}  // namespace zoomr::inline v0

#define ZOOMR_HAS_TIERED
#include <zoomr/compiled.inl>

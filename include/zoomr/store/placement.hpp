// SPDX-License-Identifier: Apache-2.0
// L4. Where details are meant to live. These placements keep everything in one memory, and decide what is counted as
// device memory; tiered.hpp really moves bytes.
#pragma once

#include <zoomr/concepts.hpp>
#include <zoomr/tier/page_pool.hpp>

namespace zoomr {
inline namespace v0 {

/// Details, summaries and tables stay on the device.
struct resident {
  using role = role::store;
  static constexpr const char* name = "resident";
  static constexpr bool offloads = false;  // the device holds only the details that are attended
  static constexpr bool evicts = false;    // pages that no query can reach any more go back to the pool

  constexpr const char* problem() const { return nullptr; }
  static constexpr void each_field(auto&, auto) {}
  friend constexpr bool operator==(const resident&, const resident&) = default;
};

static_assert(component<resident>);

/// Details live on the host; the device holds the attended tokens, summaries and tables.
struct details_on_host {
  using role = role::store;
  static constexpr const char* name = "details_on_host";
  static constexpr bool offloads = true;  // the device holds only the details that are attended
  static constexpr bool evicts = false;   // pages that no query can reach any more go back to the pool

  constexpr const char* problem() const { return nullptr; }
  static constexpr void each_field(auto&, auto) {}
  friend constexpr bool operator==(const details_on_host&, const details_on_host&) = default;
};

static_assert(component<details_on_host>);

/// What no query can reach any more, nor after a rollback of `config.undo_tokens`, is given up: for policies
/// that never choose details.
struct evicting {
  using role = role::store;
  static constexpr const char* name = "evicting";
  static constexpr bool offloads = false;  // the device holds only the details that are attended
  static constexpr bool evicts = true;     // pages that no query can reach any more go back to the pool

  constexpr const char* problem() const { return nullptr; }
  static constexpr void each_field(auto&, auto) {}
  friend constexpr bool operator==(const evicting&, const evicting&) = default;
};

static_assert(component<evicting>);

/// A store that says where pages lie (`moves`, `pool<T>`), and may fail to bring them.
template <class Store>
concept tiered_store = requires {
  requires Store::moves;
};

namespace composing {
template <class Store, class T>
struct pool_of_store {
  using type = page_pool<T>;
};
template <tiered_store Store, class T>
struct pool_of_store<Store, T> {
  using type = typename Store::template pool<T>;
};
}  // namespace composing

/// Where a store keeps pages of `T`: its own pool, or one memory.
template <class Store, class T>
using pool_of = typename composing::pool_of_store<Store, T>::type;

}  // namespace v0
}  // namespace zoomr

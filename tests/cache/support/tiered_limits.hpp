// SPDX-License-Identifier: Apache-2.0
// Capacities of tiers, counted in blocks.
#pragma once

#include <zoomr/kv_cache.hpp>

namespace zoomr_test {

/// The limits with an arena of so many blocks, which hold `T`.
template <class T, class Policy>
zoomr::config with_arena(const zoomr::shape& model, const Policy& policy, zoomr::config limits, zoomr::index_t blocks) {
  constexpr bool may_fail = zoomr::pool_of<decltype(Policy::placement), T>::may_fail;
  const zoomr::detail::layout sizes(model, zoomr::detail::any_policy_of<Policy>(policy), limits, may_fail);
  limits.tiers.device = zoomr::byte_count{1} << 40;
  const zoomr::memory_use all = zoomr::kv_cache<Policy, T>::bytes(model, policy, limits);
  limits.tiers.device = all.total() - all.details + blocks * sizes.blocks.template bytes<T>();
  return limits;
}

/// @param device, host  blocks; without a path the host has room for all
/// @param path          of the file under the host's tier, or nullptr
template <class Policy>
zoomr::config tiered_limits(const zoomr::shape& model, const Policy& policy, zoomr::config limits,
                            zoomr::index_t device, zoomr::index_t host, const char* path) {
  using pool_type = zoomr::pool_of<decltype(Policy::placement), float>;
  using tier_type = typename pool_type::tier_type;
  limits = with_arena<float>(model, policy, limits, device);
  if (path == nullptr) return limits;
  const zoomr::detail::layout sizes(model, zoomr::detail::any_policy_of<Policy>(policy), limits, pool_type::may_fail);
  const zoomr::byte_count block = sizes.blocks.template bytes<float>();
  const zoomr::index_t pages = sizes.pool_pages();
  const zoomr::byte_count blocks = zoomr::byte_count{pages} * model.kv_lanes() / sizes.blocks.heads;
  const zoomr::byte_count tables = blocks * (2 * 4 + 1 + 8) + (device + host) * tier_type::frame_table_bytes;
  limits.tiers.host = tables + host * block;
  limits.tiers.file = blocks * block;
  limits.tiers.path = path;
  return limits;
}

}  // namespace zoomr_test

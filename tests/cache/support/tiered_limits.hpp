// SPDX-License-Identifier: Apache-2.0
// Capacities of tiers, counted in blocks.
#pragma once

#include <zoomr/kv_cache.hpp>

namespace zoomr_test {

/// @param device, host  blocks; without a path the host has room for all
/// @param path          of the file under the host's tier, or nullptr
template <class Policy>
zoomr::config tiered_limits(const zoomr::shape& model, const Policy& policy, zoomr::config limits,
                            zoomr::index_t device, zoomr::index_t host, const char* path) {
  using pool_type = zoomr::pool_of<decltype(Policy::placement), float>;
  using tier_type = typename pool_type::tier_type;
  const zoomr::detail::layout sizes(model, zoomr::detail::any_policy_of<Policy>(policy), limits, pool_type::may_fail);
  const zoomr::byte_count block = 2 * sizes.blocks.heads * zoomr::page_tokens * model.head_dim * 4;
  limits.tiers.device = zoomr::byte_count{1} << 40;
  const zoomr::memory_use all = zoomr::kv_cache<Policy>::bytes(model, policy, limits);
  limits.tiers.device = all.total() - all.details + device * block;
  if (path == nullptr) return limits;
  const zoomr::index_t pages = sizes.pool_pages();
  const zoomr::byte_count blocks = zoomr::byte_count{pages} * model.kv_lanes() / sizes.blocks.heads;
  const zoomr::byte_count tables = blocks * (2 * 4 + 1 + 8) + (device + host) * tier_type::frame_table_bytes;
  limits.tiers.host = tables + host * block;
  limits.tiers.file = blocks * block;
  limits.tiers.path = path;
  return limits;
}

}  // namespace zoomr_test

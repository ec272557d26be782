// SPDX-License-Identifier: Apache-2.0
// Capacities of tiers, counted in blocks.
#pragma once

#include <zoomr/kv_cache.hpp>

namespace zoomr_test {

/// The limits with memory for so many blocks, which hold `T`, and a file for all.
/// @param path  of the file; by default one in a folder that all share
template <class T = float, class Policy>
zoomr::config tiered_limits(const zoomr::shape& model, const Policy& policy, zoomr::config limits,
                            zoomr::index_t frames, const char* path = "/tmp") {
  using pool_type = zoomr::pool_of<decltype(Policy::placement), T>;
  const zoomr::detail::layout sizes(model, zoomr::detail::any_policy_of<Policy>(policy), limits, pool_type::may_fail);
  limits.tiers = {.host = zoomr::byte_count{1} << 40, .file = zoomr::byte_count{1} << 40, .path = path};
  const zoomr::memory_use all = zoomr::kv_cache<Policy, T>::bytes(model, policy, limits);
  const zoomr::byte_count block = sizes.blocks.template bytes<T>();
  limits.tiers.host = all.total() + (frames - all.file / block) * (block + pool_type::tier_type::frame_table_bytes);
  limits.tiers.file = all.file;
  return limits;
}

}  // namespace zoomr_test

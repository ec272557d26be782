// SPDX-License-Identifier: Apache-2.0
// How much a device cache over tiers must be given for an arena of so many blocks.
#pragma once

#include <cache/device/device_against_host.hpp>

namespace zoomr_test {

/// Limits under which the arena has room for `pages` pages of one layer: as many blocks, or that for each KV head.
template <class Policy, class Cache = zoomr::device_cache<Policy, float, 8, 2>>
zoomr::config arena_limits(const Policy& policy, zoomr::config limits, index_t pages, const shape& of = model) {
  limits.tiers.device = zoomr::byte_count{1} << 40;
  const zoomr::byte_count page = zoomr::detail::device_sizes(of, zoomr::detail::any_policy_of<Policy>(policy), limits,
                                                             3, zoomr::detail::pages_in::tiers)
                                     .arena_page_bytes(sizeof(float), zoomr::device_arena<float>::frame_bytes);
  for (limits.tiers.device = 0;;) {  // the least, as its refusal says
    try {
      Cache::bytes(of, policy, limits, 3);
      limits.tiers.device += (pages - 1) * page;
      return limits;
    } catch (const zoomr::precondition_error& refused) {
      const std::string what = refused.what();
      const std::size_t at = what.find("at least ");
      REQUIRE(at != std::string::npos);
      const auto least = static_cast<zoomr::byte_count>(std::stoll(what.substr(at + 9)));
      REQUIRE(least > limits.tiers.device);
      limits.tiers.device = least;
    }
  }
}

}  // namespace zoomr_test

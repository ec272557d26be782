// SPDX-License-Identifier: Apache-2.0
// How much of a large grid of cases is tried.
#pragma once

#include <cstdint>  // std::int64_t
#include <cstdlib>  // std::getenv, std::strtoll

namespace zoomr_test {

/// Of many cases of one kind every so many are tried: all, unless ZOOMR_STRIDE says otherwise, as in the presets that
/// CI runs.
inline std::int64_t stride() {
  const char* const given = std::getenv("ZOOMR_STRIDE");
  const long long wanted = given == nullptr ? 1 : std::strtoll(given, nullptr, 10);
  return wanted > 1 ? wanted : 1;
}

}  // namespace zoomr_test

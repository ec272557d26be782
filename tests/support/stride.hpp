// SPDX-License-Identifier: Apache-2.0
// How much of a large grid of cases is tried.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdint>  // std::int64_t, std::uint64_t
#include <cstdlib>  // std::getenv, std::strtoll
#include <vector>   // std::vector

namespace zoomr_test {

/// Of many cases of one kind every so many are tried: all, unless ZOOMR_STRIDE says otherwise, as in the presets that
/// CI runs.
inline std::int64_t stride() {
  const char* const given = std::getenv("ZOOMR_STRIDE");
  const long long wanted = given == nullptr ? 1 : std::strtoll(given, nullptr, 10);
  return wanted > 1 ? wanted : 1;
}

/// The stride through a list of a few cases: 1, or 2 where any is wanted.
inline int short_stride() { return stride() > 1 ? 2 : 1; }

/// Seeds first, first + 1, ...: `count` of them, or where a stride is wanted every second, the first among them.
inline std::vector<std::uint64_t> seeds_from(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> found;
  for (std::uint64_t seed = first; seed < first + count; seed += static_cast<std::uint64_t>(short_stride())) {
    found.push_back(seed);
  }
  return found;
}

/// All of a list, or where a stride is wanted every second, the last among them.
template <class Case>
std::vector<Case> some_of(const std::vector<Case>& list) {
  std::vector<Case> found;
  const auto step = static_cast<std::size_t>(short_stride());
  for (std::size_t i = (list.size() - 1) % step; i < list.size(); i += step) found.push_back(list[i]);
  return found;
}

}  // namespace zoomr_test
